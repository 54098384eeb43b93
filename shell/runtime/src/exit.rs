//! Why a process ends: one closed enum with exit codes (`spec/operate.md`, "Exit codes"), each with one line that says
//! what to do.

use std::fmt;

/// Why `serve` ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// Stopped in order, 0.
    Stopped,
    /// The configuration is wrong, 64.
    Config(String),
    /// The data directory is damaged or of another format, 65.
    Data(String),
    /// The data directory is in use, 66.
    InUse(String),
    /// A write or flush failed, or there is no space for a start, 70.
    Storage(String),
    /// A listener could not be opened, 71.
    Listen(String),
    /// Anything else, 1.
    Other(String),
}

impl ExitReason {
    /// The process's exit code.
    pub fn code(&self) -> u8 {
        match self {
            ExitReason::Stopped => 0,
            ExitReason::Config(_) => 64,
            ExitReason::Data(_) => 65,
            ExitReason::InUse(_) => 66,
            ExitReason::Storage(_) => 70,
            ExitReason::Listen(_) => 71,
            ExitReason::Other(_) => 1,
        }
    }
}

impl fmt::Display for ExitReason {
    /// One line that says what happened to which thing, and what to do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExitReason::Stopped => f.write_str("stopped"),
            ExitReason::Config(what)
            | ExitReason::Data(what)
            | ExitReason::InUse(what)
            | ExitReason::Storage(what)
            | ExitReason::Listen(what)
            | ExitReason::Other(what) => f.write_str(what),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_specification() {
        let all = [
            (ExitReason::Stopped, 0),
            (ExitReason::Other("x".into()), 1),
            (ExitReason::Config("x".into()), 64),
            (ExitReason::Data("x".into()), 65),
            (ExitReason::InUse("x".into()), 66),
            (ExitReason::Storage("x".into()), 70),
            (ExitReason::Listen("x".into()), 71),
        ];
        for (reason, code) in all {
            assert_eq!(reason.code(), code);
            assert!(!reason.to_string().contains('\n'), "one line");
        }
    }
}
