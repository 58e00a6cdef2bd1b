//! What a guardian is told about its run: encoded by the daemon, read in place by the guardian.
//!
//! The strings end with a NUL, so that the guardian gives the arguments to the kernel where they
//! lie and copies nothing.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::wire::Token;
use crate::process::spawn::Prepared;

/// Longer than what any kernel takes as arguments and environment.
pub(in crate::process) const LONGEST: u64 = 64 * 1024 * 1024;

const NONE: u64 = u64::MAX;

/// The numbers of a spec. Times are nanoseconds, the fence one of the boot clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::process) struct Terms {
    pub token: Token,
    pub fence: u64,
    pub grace: u64,
    pub lease_grace: u64,
    pub timeout: Option<u64>,
    pub open_files: Option<u64>,
    pub address_space: Option<u64>,
    pub cpu_seconds: Option<u64>,
    pub no_new_privileges: bool,
    /// The most bytes that are kept of each output.
    pub log_cap: u64,
}

/// Writes a spec.
pub(in crate::process) struct Encoder(Vec<u8>);

impl Encoder {
    pub(in crate::process) fn new(terms: &Terms) -> Self {
        let mut encoder = Self(Vec::with_capacity(1024));
        encoder.0.extend_from_slice(&terms.token);
        for number in [
            terms.fence,
            terms.grace,
            terms.lease_grace,
            terms.timeout.unwrap_or(NONE),
            terms.open_files.unwrap_or(NONE),
            terms.address_space.unwrap_or(NONE),
            terms.cpu_seconds.unwrap_or(NONE),
            terms.no_new_privileges.into(),
            terms.log_cap,
        ] {
            encoder.number(number);
        }
        encoder
    }

    pub(in crate::process) fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    /// A string of these parts, none of which has a NUL in it.
    pub(in crate::process) fn string(&mut self, parts: &[&[u8]]) {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.number(length as u64 + 1);
        for part in parts {
            self.0.extend_from_slice(part);
        }
        self.0.push(0);
    }

    /// What is to be executed, and where.
    pub(in crate::process) fn command(&mut self, cwd: Option<&Path>, prepared: &Prepared) {
        self.string(&[cwd.map_or(OsStr::new(""), Path::as_os_str).as_bytes()]);
        self.string(&[prepared.program.as_os_str().as_bytes()]);
        self.number(prepared.argv.len() as u64);
        for argument in &prepared.argv {
            self.string(&[argument.as_bytes()]);
        }
        self.number(prepared.env.len() as u64);
        for (name, value) in &prepared.env {
            self.string(&[name.as_bytes(), b"=", value.as_bytes()]);
        }
    }

    pub(in crate::process) fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Reads a spec; every method gives nothing when the bytes are not what they should be.
pub(super) struct Decoder<'a>(pub(super) &'a [u8]);

impl<'a> Decoder<'a> {
    pub(super) fn terms(&mut self) -> Option<Terms> {
        let token = self.take(32)?.try_into().ok()?;
        Some(Terms {
            token,
            fence: self.number()?,
            grace: self.number()?,
            lease_grace: self.number()?,
            timeout: self.optional()?,
            open_files: self.optional()?,
            address_space: self.optional()?,
            cpu_seconds: self.optional()?,
            no_new_privileges: self.number()? != 0,
            log_cap: self.number()?,
        })
    }

    pub(super) fn string(&mut self) -> Option<&'a CStr> {
        let length = self.number()?.try_into().ok()?;
        CStr::from_bytes_with_nul(self.take(length)?).ok()
    }

    pub(super) fn strings(&mut self) -> Option<Vec<&'a CStr>> {
        let count = self.number()?;
        (0..count).map(|_| self.string()).collect()
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn optional(&mut self) -> Option<Option<u64>> {
        Some(Some(self.number()?).filter(|number| *number != NONE))
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_arrives_as_it_was_sent_and_never_in_part() {
        let terms = Terms {
            token: [7; 32],
            fence: 1,
            grace: 2,
            lease_grace: 6,
            timeout: None,
            open_files: Some(3),
            address_space: None,
            cpu_seconds: Some(4),
            no_new_privileges: true,
            log_cap: 5,
        };
        let mut encoder = Encoder::new(&terms);
        encoder.string(&[b"/bin/sh"]);
        encoder.number(2);
        encoder.string(&[b"A", b"=", b"\xff"]);
        encoder.string(&[]);
        let bytes = encoder.finish();
        let read = |bytes| {
            let mut decoder = Decoder(bytes);
            Some((decoder.terms()?, decoder.string()?, decoder.strings()?))
        };
        assert_eq!(read(&bytes), Some((terms, c"/bin/sh", vec![c"A=\xff", c""])));
        for end in 0..bytes.len() {
            assert_eq!(read(&bytes[..end]), None, "{end}");
        }
    }
}
