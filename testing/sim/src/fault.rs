//! The kinds of faults, each with its name. What each does is in `world/trouble.rs`.

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// A connection is slow for a while.
    Delay,
    /// A connection is cut; what is under way is lost.
    Cut,
    /// A client is gone without a word, and comes back on a new connection.
    HalfOpenClient,
    /// The broker's end of a connection is gone without a word.
    HalfOpenBroker,
    /// Bytes come one by one.
    OneByte,
    /// Nothing reaches the broker for a while.
    HoleToBroker,
    /// Nothing reaches the client for a while.
    HoleToClient,
    /// A client gives up its connection, which still brings to the broker what was under way while the new one works.
    OldAlive,
    /// The wall clock is set by a second.
    ClockSecond,
    /// … by an hour.
    ClockHour,
    /// … by ten years.
    ClockDecade,
    /// The wall clock runs at another speed for a while.
    ClockSkew,
    /// The wall clock is set back while the broker is down.
    ClockBackAtRestart,
    /// kill -9: the page cache stays.
    Kill,
    /// Power loss: nothing unsynced is kept.
    PowerLost,
    /// Power loss: sectors of 512 bytes are kept or lost.
    PowerTorn512,
    /// … of 4096 bytes.
    PowerTorn4096,
    /// Power loss: unsynced writes are kept or lost as a whole, in any order.
    PowerReordered,
    /// The power goes again in the middle of the start that follows.
    PowerInRecovery,
    /// Stopped in order, and started.
    Stop,
    /// The process stands still (SIGSTOP), and goes on.
    Pause,
    /// A read of the disk fails.
    ReadError,
    /// A write fails.
    WriteError,
    /// A sync fails.
    SyncError,
    /// A rename fails.
    RenameError,
    /// A file cannot be made.
    CreateError,
    /// Every operation fails until the disk is replaced, which holds what was safe.
    DiskBroken,
    /// The disk is full for a while.
    DiskFull,
    /// The disk is full when the broker starts.
    DiskFullAtStart,
    /// Every operation takes many times as long.
    DiskSlow,
    /// One operation takes very long.
    DiskStalled,
    /// Bits flip in a block that was never confirmed.
    FlipTail,
    /// Bits flip in the body of a stored message.
    FlipBody,
    /// Bits flip in the header of a confirmed block.
    FlipHeader,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 34] = [
        Kind::Delay,
        Kind::Cut,
        Kind::HalfOpenClient,
        Kind::HalfOpenBroker,
        Kind::OneByte,
        Kind::HoleToBroker,
        Kind::HoleToClient,
        Kind::OldAlive,
        Kind::ClockSecond,
        Kind::ClockHour,
        Kind::ClockDecade,
        Kind::ClockSkew,
        Kind::ClockBackAtRestart,
        Kind::Kill,
        Kind::PowerLost,
        Kind::PowerTorn512,
        Kind::PowerTorn4096,
        Kind::PowerReordered,
        Kind::PowerInRecovery,
        Kind::Stop,
        Kind::Pause,
        Kind::ReadError,
        Kind::WriteError,
        Kind::SyncError,
        Kind::RenameError,
        Kind::CreateError,
        Kind::DiskBroken,
        Kind::DiskFull,
        Kind::DiskFullAtStart,
        Kind::DiskSlow,
        Kind::DiskStalled,
        Kind::FlipTail,
        Kind::FlipBody,
        Kind::FlipHeader,
    ];

    /// How many there are.
    pub const COUNT: usize = Kind::ALL.len();

    /// Its name in tables and histories.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Delay => "delay",
            Kind::Cut => "cut",
            Kind::HalfOpenClient => "half-open-client",
            Kind::HalfOpenBroker => "half-open-broker",
            Kind::OneByte => "one-byte",
            Kind::HoleToBroker => "hole-to-broker",
            Kind::HoleToClient => "hole-to-client",
            Kind::OldAlive => "old-alive",
            Kind::ClockSecond => "clock-second",
            Kind::ClockHour => "clock-hour",
            Kind::ClockDecade => "clock-decade",
            Kind::ClockSkew => "clock-skew",
            Kind::ClockBackAtRestart => "clock-back-at-restart",
            Kind::Kill => "kill",
            Kind::PowerLost => "power-lost",
            Kind::PowerTorn512 => "power-torn-512",
            Kind::PowerTorn4096 => "power-torn-4096",
            Kind::PowerReordered => "power-reordered",
            Kind::PowerInRecovery => "power-in-recovery",
            Kind::Stop => "stop",
            Kind::Pause => "pause",
            Kind::ReadError => "read-error",
            Kind::WriteError => "write-error",
            Kind::SyncError => "sync-error",
            Kind::RenameError => "rename-error",
            Kind::CreateError => "create-error",
            Kind::DiskBroken => "disk-broken",
            Kind::DiskFull => "disk-full",
            Kind::DiskFullAtStart => "disk-full-at-start",
            Kind::DiskSlow => "disk-slow",
            Kind::DiskStalled => "disk-stalled",
            Kind::FlipTail => "flip-tail",
            Kind::FlipBody => "flip-body",
            Kind::FlipHeader => "flip-header",
        }
    }

    /// Whether it waits for an operation of the disk, or for something to damage, and may find none.
    pub(crate) fn waits(self) -> bool {
        matches!(
            self,
            Kind::ReadError
                | Kind::WriteError
                | Kind::SyncError
                | Kind::RenameError
                | Kind::CreateError
                | Kind::DiskBroken
                | Kind::DiskFull
                | Kind::DiskStalled
                | Kind::FlipTail
                | Kind::FlipBody
                | Kind::FlipHeader
        )
    }

    /// The kind of this name.
    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// How often it is drawn, beside the others.
    pub(crate) fn weight(self) -> u64 {
        match self {
            // Cheap, and common outside.
            Kind::Delay | Kind::Cut | Kind::OneByte | Kind::Pause | Kind::DiskSlow | Kind::DiskStalled => 4,
            // These wait for an operation that is rare.
            Kind::RenameError | Kind::CreateError | Kind::ReadError | Kind::WriteError | Kind::DiskFull => 5,
            _ => 3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_stands_at_its_number_and_has_a_name_of_its_own() {
        for (number, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
            assert!(Kind::ALL[..number].iter().all(|other| other.name() != kind.name()), "{}", kind.name());
        }
    }
}
