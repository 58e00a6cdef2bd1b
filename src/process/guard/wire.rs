//! What a daemon and a guardian say to each other.
//!
//! A conversation is a stream in both directions. On the guardian's standard input it begins with
//! [`Message::Open`], the run's spec and the bytes of the task's standard input; on `guard.sock`,
//! with [`Message::Hello`]. All messages have the same length, so that neither side ever needs more
//! memory than it has set aside.
//!
//! A daemon may be newer than the guardian that it finds: the numbers here are never reused.

/// The version of everything in this file and of the spec.
pub(in crate::process) const VERSION: u64 = 1;

/// What a fork server says first: that it is one, and of which version. To it, each byte goes with the
/// other end of a conversation.
pub(in crate::process) const FORKS: u8 = 1;

/// The length of a message.
pub(in crate::process) const FRAME: usize = 128;

/// The value of [`Message::Open`]'s `stdin` for a task that reads from nowhere.
pub(in crate::process) const NO_STDIN: u64 = u64::MAX;

const WORDS: usize = FRAME / 8;
const MAGIC: u64 = u64::from_le_bytes(*b"LHguard\n");

/// What proves that a connection comes from who made the run's directory.
pub(in crate::process) type Token = [u8; 32];

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::process) enum Message {
    /// To the guardian, first, with the directory of the run and the machine locks as descriptors:
    /// so many bytes of spec follow, then so many for the task's standard input.
    Open { version: u64, body: u64, stdin: u64, descriptors: u64 },
    /// To the guardian, first on a later connection. With `look`, only [`Message::Welcome`] is
    /// wanted, and the connection that is obeyed stays the same.
    Hello { version: u64, token: Token, look: bool },
    /// To the guardian: the fence is at least so far, in nanoseconds of the boot clock.
    Extend { fence: u64 },
    /// To the guardian: end the task, within so many nanoseconds.
    Stop { grace: u64, reason: u64 },
    /// From the guardian: the answer to a hello.
    Welcome { version: u64, guardian: u64, task: u64, fence: u64, ending: bool },
    /// From the guardian, its last message: the hello was not accepted.
    Refused,
    /// From the guardian, its last message: another connection is obeyed now.
    Displaced,
    /// From the guardian: the program is being executed.
    Started { guardian: u64, task: u64 },
    /// From the guardian, its last message: nothing runs.
    Failed { step: u64, errno: u64 },
    /// From the guardian, its last message: the task and everything that it started have ended.
    Exited(Summary),
}

/// The numbers of an end. They stand in the exit record too; here they are for the case that it
/// could not be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::process) struct Summary {
    /// Of [`Cause`].
    pub ended_by: u64,
    /// Of [`Outcome`].
    pub outcome: u64,
    /// The exit code or the signal.
    pub value: u64,
    pub user_micros: u64,
    pub system_micros: u64,
    pub max_rss_kib: u64,
    pub leftovers: u64,
    pub unkillable: u64,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    pub started_micros: u64,
    pub ended_micros: u64,
    /// What kept the exit record from being written, or 0.
    pub record_errno: u64,
}

/// A closed list of numbers, as both sides know it.
macro_rules! numbers {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $number:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(in crate::process) enum $name { $($(#[$doc])* $variant = $number,)* }

        impl $name {
            pub(in crate::process) fn number(self) -> u64 {
                self as u64
            }

            pub(in crate::process) fn from_number(number: u64) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

numbers! {
    /// What a guardian was doing when it, or the task's process, could not go on.
    Step {
        /// Reading the spec.
        Protocol = 1,
        /// Taking the lock of the run.
        Lock = 2,
        /// Looking whether the run was given up, or has run, already.
        Sealed = 3,
        /// Comparing the fence with the clock.
        Fence = 4,
        /// Making the files of the run.
        Files = 5,
        /// Becoming a session leader and the parent of orphans.
        Session = 6,
        /// Making what the task is watched with.
        Watch = 7,
        /// Creating the task's process.
        Fork = 8,
        /// In the task's process: its session, the signal at its guardian's death, its signals.
        Task = 9,
        /// In the task's process: its standard input and outputs.
        Descriptors = 10,
        /// In the task's process: its limits.
        Limits = 11,
        /// Entering the working directory.
        Cwd = 12,
        /// Executing the program.
        Exec = 13,
    }
}

numbers! {
    /// Who ended a run.
    Cause {
        Task = 1,
        Cancel = 2,
        Timeout = 3,
        Fence = 4,
        Stop = 5,
    }
}

numbers! {
    /// How the leader left.
    Outcome {
        Exited = 1,
        Signalled = 2,
        Dumped = 3,
        Unkillable = 4,
        Lost = 5,
    }
}

impl Cause {
    /// The word for it in the exit record.
    pub(in crate::process) fn word(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Cancel => "cancel",
            Self::Timeout => "timeout",
            Self::Fence => "fence",
            Self::Stop => "stop",
        }
    }
}

impl Message {
    pub(in crate::process) fn to_bytes(self) -> [u8; FRAME] {
        let mut words = [0; WORDS];
        let mut put = |given: &[u64]| words[..given.len()].copy_from_slice(given);
        match self {
            Self::Open { version, body, stdin, descriptors } => {
                put(&[MAGIC, version, body, stdin, descriptors]);
            }
            Self::Hello { version, token, look } => {
                let [a, b, c, d] = token_words(token);
                put(&[1, version, look.into(), a, b, c, d]);
            }
            Self::Extend { fence } => put(&[2, fence]),
            Self::Stop { grace, reason } => put(&[3, grace, reason]),
            Self::Welcome { version, guardian, task, fence, ending } => {
                put(&[101, version, guardian, task, fence, ending.into()]);
            }
            Self::Refused => put(&[102]),
            Self::Displaced => put(&[103]),
            Self::Started { guardian, task } => put(&[104, guardian, task]),
            Self::Failed { step, errno } => put(&[105, step, errno]),
            Self::Exited(end) => put(&[
                106,
                end.ended_by,
                end.outcome,
                end.value,
                end.user_micros,
                end.system_micros,
                end.max_rss_kib,
                end.leftovers,
                end.unkillable,
                end.stdout_bytes,
                end.stderr_bytes,
                end.started_micros,
                end.ended_micros,
                end.record_errno,
            ]),
        }
        let mut bytes = [0; FRAME];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Nothing when it is no message of this version or an earlier one.
    pub(in crate::process) fn from_bytes(bytes: &[u8; FRAME]) -> Option<Self> {
        let mut words = [0; WORDS];
        for (word, place) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(place.try_into().ok()?);
        }
        let [kind, a, b, c, d, e, f, g, h, i, j, k, l, m, ..] = words;
        Some(match kind {
            MAGIC => Self::Open { version: a, body: b, stdin: c, descriptors: d },
            1 => Self::Hello { version: a, look: b != 0, token: token_bytes([c, d, e, f]) },
            2 => Self::Extend { fence: a },
            3 => Self::Stop { grace: a, reason: b },
            101 => Self::Welcome { version: a, guardian: b, task: c, fence: d, ending: e != 0 },
            102 => Self::Refused,
            103 => Self::Displaced,
            104 => Self::Started { guardian: a, task: b },
            105 => Self::Failed { step: a, errno: b },
            106 => Self::Exited(Summary {
                ended_by: a,
                outcome: b,
                value: c,
                user_micros: d,
                system_micros: e,
                max_rss_kib: f,
                leftovers: g,
                unkillable: h,
                stdout_bytes: i,
                stderr_bytes: j,
                started_micros: k,
                ended_micros: l,
                record_errno: m,
            }),
            _ => return None,
        })
    }
}

fn token_words(token: Token) -> [u64; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(token.chunks_exact(8)) {
        let mut eight = [0; 8];
        eight.copy_from_slice(bytes);
        *word = u64::from_le_bytes(eight);
    }
    words
}

fn token_bytes(words: [u64; 4]) -> Token {
    let mut token = [0; 32];
    for (place, word) in token.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    token
}

/// Collects the bytes of a stream until a message is whole.
#[derive(Clone, Debug)]
pub(in crate::process) struct Assembly {
    bytes: [u8; FRAME],
    filled: usize,
}

impl Assembly {
    pub(in crate::process) const fn new() -> Self {
        Self { bytes: [0; FRAME], filled: 0 }
    }

    /// Where the next bytes go. Never empty.
    pub(in crate::process) fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.filled..]
    }

    /// Counts `read` bytes that were put into [`room`](Self::room), and gives the message when it is
    /// whole; inside is nothing if its kind is not known.
    pub(in crate::process) fn add(&mut self, read: usize) -> Option<Option<Message>> {
        self.filled = (self.filled + read).min(FRAME);
        if self.filled < FRAME {
            return None;
        }
        self.filled = 0;
        Some(Message::from_bytes(&self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_arrives_as_it_was_sent() {
        let mut token = [0; 32];
        for (index, byte) in (0u8..).zip(&mut token) {
            *byte = index;
        }
        let end = Summary {
            ended_by: 1,
            outcome: 2,
            value: 3,
            user_micros: 4,
            system_micros: 5,
            max_rss_kib: 6,
            leftovers: 7,
            unkillable: 8,
            stdout_bytes: 9,
            stderr_bytes: 10,
            started_micros: 11,
            ended_micros: 12,
            record_errno: 13,
        };
        let all = [
            Message::Open { version: 1, body: 2, stdin: NO_STDIN, descriptors: 3 },
            Message::Hello { version: 1, token, look: true },
            Message::Extend { fence: u64::MAX },
            Message::Stop { grace: 5, reason: 3 },
            Message::Welcome { version: 1, guardian: 2, task: 3, fence: 4, ending: true },
            Message::Refused,
            Message::Displaced,
            Message::Started { guardian: 2, task: 3 },
            Message::Failed { step: 4, errno: 5 },
            Message::Exited(end),
        ];
        for message in all {
            let bytes = message.to_bytes();
            let mut assembly = Assembly::new();
            for (index, byte) in bytes.iter().enumerate() {
                assembly.room()[0] = *byte;
                let whole = assembly.add(1);
                let expected = (index + 1 == FRAME).then_some(Some(message));
                assert_eq!(whole, expected, "{message:?} after {} bytes", index + 1);
            }
        }
        assert_eq!(Message::from_bytes(&[0; FRAME]), None);
    }
}
