//! The decisions of the protocol, each as what becomes of it when it is flipped.

/// The one decision that a mode flips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    None,

    /// The clocks differ, and the fence does not fall due any earlier for it.
    NoMargin,

    // The guardian.
    /// The fence works only while a daemon is there that can act.
    NoFenceWhileAlone,
    /// The fence is counted from the answer of a claim, renewal or takeover, not from its request.
    FenceFromAnswer,
    /// The guardian starts its task without a last look at the fence.
    NoFenceCheckAtStart,
    /// A socket at which nobody answers is taken for a dead guardian, without taking the run's lock.
    NoRunLock,
    /// The exit record does not say who ended the run.
    RecordWithoutReason,
    /// An EXTEND of an incarnation that is not the newest is obeyed. Not a flaw while the state
    /// directory has its lock: a control.
    OldExtendObeyed,

    // Adoption.
    /// The takeover does not compare the owner.
    TakeoverWithoutOwnerCas,
    /// The takeover does not ask whether the lease has expired.
    TakeoverAfterExpiry,
    TakeoverFenceFromAnswer,
    /// Once a second read shows that the takeover had succeeded, the fence is counted from that read.
    TakeoverFenceFromReread,
    NoExtendAfterTakeover,
    ExtendBeforeTakeover,
    TakeoverLowersExpiry,
    LostAnswerMeansLost,
    LostAnswerMeansWon,
    /// A takeover or an heir's write that changed 0 rows is final.
    ZeroRowsMeansLost,
    /// The old owner is who spawned the guardian, not who the row names.
    OwnerFromRunDirectory,
    /// What the exit record says is written by id only.
    RecordUnguarded,
    /// A run that is not adoptable is stopped, and what its record says is not written.
    StopDropsRecord,
    ClaimBeforeSweep,
    /// The state directory has no lock: two incarnations may live at once.
    NoStateLock,
    /// The same, and guardians obey the older one too.
    NoStateLockAndOldOneObeyed,
    /// The lock of the state directory is not close-on-exec.
    LockInherited,

    // Judging.
    /// What has ended is judged by an heir without the lease.
    JudgedWithoutLease,
    /// The guardian of a check has no fence.
    CheckWithoutFence,

    // Writes of an owner.
    /// A claim takes its epoch from a later read, not from its own statement.
    EpochReadLater,
    FinishByOwnerOnly,
    FinishNeedsLiveLease,
    RenewUnguarded,
    RenewalUnknownMeansLost,

    // The reaper.
    /// The reaper's write does not compare the expiry that it saw.
    ReaperIgnoresExpiry,
    /// The reaper does not leave out the runs whose directory is in its own state directory.
    ReaperTakesOwnRuns,
    ReaperIgnoresCancel,
    AttemptsUnbounded,

    // Cancel and shutdown.
    CancelledBeforeTreeIsDead,
    RequeueIgnoresCancel,
    DrainStillStarts,

    // Between claim and start.
    /// What has no run directory is taken for never started, also while its executor is about to start
    /// it.
    UnstartedInHand,
}
