//! Producers that number what they send, so that what is sent twice is stored once (`docs/decisions/0013-numbered-producers.md`).

/// A producer over all its connections, named by its client. It is known to one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerId(pub [u8; 16]);

/// The number of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbered {
    /// Whose.
    pub producer: ProducerId,
    /// Its number, ascending in the order of sending. A message that is sent again has the number that it had.
    pub number: u64,
    /// The producer's lowest number that is not confirmed; it sends none below again.
    pub lowest: u64,
    /// It was never sent before.
    pub fresh: bool,
}
