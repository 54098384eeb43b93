//! SASL mechanisms without I/O: ANONYMOUS (RFC 4505) and PLAIN (RFC 4616), the server's side.
//!
//! Must not know: the broker's model, sockets, any protocol's frames. Whether a mechanism may be offered on a connection is
//! the caller's decision; this crate only parses what the peer sends.
#![no_std]

extern crate alloc;

use alloc::string::String;
use core::fmt;

/// A mechanism by its registered name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// RFC 4505: no credentials, an optional trace.
    Anonymous,
    /// RFC 4616: a name and a password in clear.
    Plain,
}

impl Mechanism {
    /// All that exist, strongest first, as AMQP 1.0 part 5, 5.3.3.1 wants them offered.
    pub const ALL: [Mechanism; 2] = [Mechanism::Plain, Mechanism::Anonymous];

    /// The registered name.
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::Anonymous => "ANONYMOUS",
            Mechanism::Plain => "PLAIN",
        }
    }

    /// The mechanism of that name.
    pub fn by_name(name: &str) -> Option<Mechanism> {
        Mechanism::ALL.into_iter().find(|m| m.name() == name)
    }
}

/// What a peer claimed in its login. Whether it is true is for the caller to say.
#[derive(Clone, PartialEq, Eq)]
pub enum Claim {
    /// Nobody in particular.
    Anonymous,
    /// A name with a password.
    Password {
        /// Who the password belongs to.
        user: String,
        /// The password.
        password: String,
    },
}

impl fmt::Debug for Claim {
    /// Never shows a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Claim::Anonymous => f.write_str("Anonymous"),
            Claim::Password { user, .. } => write!(f, "Password {{ user: {user:?} }}"),
        }
    }
}

/// A login that is not of its mechanism's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// PLAIN is `authorization NUL user NUL password`.
    Parts {
        /// NUL bytes found; there must be two.
        nuls: usize,
    },
    /// A part is not UTF-8.
    NotUtf8,
    /// The user's name is empty.
    NoUser,
    /// An authorization identity other than the user itself.
    ActingForAnother,
    /// A part has more than [`PART_LIMIT_BYTES`].
    TooLong {
        /// Bytes of the part.
        bytes: usize,
    },
}

/// Longest user name or password, in bytes (RFC 4616 says 255 characters at least for each).
pub const PART_LIMIT_BYTES: usize = 1024;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::Parts { nuls } => {
                write!(f, "a PLAIN response has exactly 2 NUL bytes between its three parts; this one has {nuls}")
            }
            Malformed::NotUtf8 => f.write_str("a PLAIN response is UTF-8; this one is not"),
            Malformed::NoUser => f.write_str("the user name is empty"),
            Malformed::ActingForAnother => f.write_str("acting for another user is not possible"),
            Malformed::TooLong { bytes } => {
                write!(f, "a user name or password has at most {PART_LIMIT_BYTES} bytes; this one has {bytes}")
            }
        }
    }
}

impl core::error::Error for Malformed {}

/// Parses the one message of the peer; both mechanisms have no challenge. An absent initial response of ANONYMOUS is an
/// empty trace.
pub fn parse(mechanism: Mechanism, response: &[u8]) -> Result<Claim, Malformed> {
    match mechanism {
        Mechanism::Anonymous => Ok(Claim::Anonymous),
        Mechanism::Plain => plain(response),
    }
}

fn plain(response: &[u8]) -> Result<Claim, Malformed> {
    let nuls = response.iter().filter(|b| **b == 0).count();
    if nuls != 2 {
        return Err(Malformed::Parts { nuls });
    }
    let mut parts = response.split(|b| *b == 0).map(|part| {
        if part.len() > PART_LIMIT_BYTES {
            return Err(Malformed::TooLong { bytes: part.len() });
        }
        core::str::from_utf8(part).map_err(|_| Malformed::NotUtf8)
    });
    let mut part = || parts.next().unwrap_or(Err(Malformed::Parts { nuls }));
    let (acting, user, password) = (part()?, part()?, part()?);
    if user.is_empty() {
        return Err(Malformed::NoUser);
    }
    if !acting.is_empty() && acting != user {
        return Err(Malformed::ActingForAnother);
    }
    Ok(Claim::Password { user: user.into(), password: password.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    fn login(user: &str, password: &str) -> Result<Claim, Malformed> {
        Ok(Claim::Password { user: user.into(), password: password.into() })
    }

    #[test]
    fn plain_has_three_parts() {
        assert_eq!(parse(Mechanism::Plain, b"\0guest\0secret"), login("guest", "secret"));
        assert_eq!(parse(Mechanism::Plain, b"guest\0guest\0"), login("guest", ""));
        assert_eq!(parse(Mechanism::Plain, b"guest"), Err(Malformed::Parts { nuls: 0 }));
        assert_eq!(parse(Mechanism::Plain, b"\0\0\0"), Err(Malformed::Parts { nuls: 3 }));
        assert_eq!(parse(Mechanism::Plain, b"\0\0secret"), Err(Malformed::NoUser));
        assert_eq!(parse(Mechanism::Plain, b"root\0guest\0x"), Err(Malformed::ActingForAnother));
        assert_eq!(parse(Mechanism::Plain, b"\0\xff\0x"), Err(Malformed::NotUtf8));
        let long = format!("\0{}\0x", "u".repeat(PART_LIMIT_BYTES + 1));
        assert_eq!(parse(Mechanism::Plain, long.as_bytes()), Err(Malformed::TooLong { bytes: PART_LIMIT_BYTES + 1 }));
        let longest = format!("\0{}\0x", "u".repeat(PART_LIMIT_BYTES));
        assert!(parse(Mechanism::Plain, longest.as_bytes()).is_ok());
    }

    #[test]
    fn anonymous_takes_any_trace() {
        assert_eq!(parse(Mechanism::Anonymous, b"\xff trace"), Ok(Claim::Anonymous));
        assert_eq!(parse(Mechanism::Anonymous, b""), Ok(Claim::Anonymous));
    }

    #[test]
    fn mechanisms_are_known_by_their_exact_names() {
        assert_eq!(Mechanism::by_name("PLAIN"), Some(Mechanism::Plain));
        assert_eq!(Mechanism::by_name("plain"), None);
    }

    #[test]
    fn a_password_is_never_shown() {
        assert!(!format!("{:?}", parse(Mechanism::Plain, b"\0guest\0secret")).contains("secret"));
    }
}
