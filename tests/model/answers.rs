//! What a daemon makes of an answer, and of none.

use super::flaws::Flaw;
use super::protocol::Protocol;
use super::requests::{Answer, Op, Request};
use super::world::{End, MAX_ATTEMPTS};
use super::world::{Epoch, Held, Inc, Status, Time, World};

impl Protocol {
    /// An answer reaches the daemon that waits for it.
    pub fn deliver(&self, w: &mut World, request: Request, answer: Answer) {
        let Request { from, sent, op, .. } = request;
        match op {
            // Its sender is dead: what reaches the guardian is the EXTEND it had sent.
            Op::Renew { epoch } | Op::Takeover { epoch, .. } if !request.awaited => {
                self.extend_from(w, from, epoch, sent);
            }
            Op::Claim => {
                if answer.changed {
                    let read_later = self.has(Flaw::EpochReadLater);
                    let epoch = if read_later { w.row.epoch } else { answer.epoch };
                    let fence = self.fence(w, from, sent);
                    w.hold(from, epoch, Some(Held::Claimed { fence }));
                }
            }
            Op::Renew { epoch } if answer.changed => self.extend_from(w, from, epoch, sent),
            Op::Renew { epoch } => self.renewal_refused(w, from, epoch),
            Op::Takeover { epoch, .. } => {
                self.takeover_answered(w, from, epoch, sent, answer.changed);
            }
            Op::Finish { epoch, heir, .. } => {
                // An heir whose write changed 0 rows reads again: while the row still runs in this
                // epoch, only its owner's name can have changed (a late takeover), and it tries again.
                let reads_again = heir && !self.has(Flaw::ZeroRowsMeansLost);
                if answer.changed || !reads_again || !w.row.runs(epoch) {
                    self.close(w, from, epoch);
                }
            }
        }
    }

    /// 0 rows: the row is read again. Cancelled: stop as cancelled. Else the lease is lost: kill, and
    /// no write.
    fn renewal_refused(&self, w: &mut World, inc: Inc, epoch: Epoch) {
        let cancelled = w.row.status == Status::Cancelled;
        let why = if cancelled { End::Cancel } else { End::Stopped };
        self.stop_tree(w, inc, epoch, why);
        self.end_check(w, epoch);
        self.close(w, inc, epoch);
    }

    fn takeover_answered(&self, w: &mut World, inc: Inc, epoch: Epoch, sent: Time, changed: bool) {
        let Some(Held::Taking { unanswered }) = w.held(inc, epoch) else {
            return;
        };
        if changed {
            self.attach(w, inc, epoch, sent);
        } else if self.has(Flaw::ZeroRowsMeansLost) {
            self.stop_and_inherit(w, inc, epoch);
        } else {
            w.hold(inc, epoch, Some(Held::Unknown { unanswered }));
        }
    }

    /// No answer came. The request may have been applied, may be applied later, or never.
    pub fn give_up(&self, w: &mut World, request: Request) {
        let Request { from, sent, op, .. } = request;
        match op {
            // Nothing was started. Should the claim have been granted, the run is given back.
            Op::Claim => {}
            // Unknown is not lost: carry on until the fence.
            Op::Renew { epoch } => {
                if self.has(Flaw::RenewalUnknownMeansLost) {
                    self.stop_tree(w, from, epoch, End::Stopped);
                    self.close(w, from, epoch);
                }
            }
            Op::Takeover { epoch, .. } => {
                let Some(Held::Taking { unanswered }) = w.held(from, epoch) else {
                    return;
                };
                match self.flaw {
                    Flaw::LostAnswerMeansLost => self.stop_and_inherit(w, from, epoch),
                    Flaw::LostAnswerMeansWon => self.attach(w, from, epoch, sent),
                    _ => {
                        let unanswered = unanswered.or(Some(sent));
                        w.hold(from, epoch, Some(Held::Unknown { unanswered }));
                    }
                }
            }
            // What is held stays `Ended`, and the write is sent again.
            Op::Finish { .. } => {}
        }
    }

    /// B1's database is quick: its requests are applied and answered within the step that sends them,
    /// and its run directories vanish at once. What can happen to a slow sender is shown by host A.
    pub fn answer_b1_at_once(&self, w: &mut World) {
        while let Some(n) = w.wire.iter().position(|r| r.from == Inc::B1) {
            let request = w.wire.remove(n);
            let changed = self.apply(w, request);
            let epoch = w.row.epoch;
            self.deliver(w, request, Answer { changed, epoch });
        }
        for epoch in 1..=MAX_ATTEMPTS {
            if w.held(Inc::B1, epoch) == Some(Held::Closed) {
                self.remove_directory(w, Inc::B1, epoch);
            }
        }
    }
}
