//! What tells that a message is sent twice, so that it is stored once (`docs/decisions/0013-numbered-producers.md`): the number that a producer
//! of ours gave it, or the id that somebody else did.

use siphasher::sip128::SipHasher24;

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

/// The duplicate id that a client gave a message, as its hash. One queue remembers the last of them.
///
/// The hash is short and has no secret: whoever may send to a queue may use any id there, also that of somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DuplicateId(pub [u8; 16]);

impl DuplicateId {
    /// That of these bytes. SipHash-2-4-128 with a key of zeros; it is stored, and must stay what it is.
    #[must_use]
    pub fn of(id: &[u8]) -> DuplicateId {
        DuplicateId(SipHasher24::new().hash(id).as_bytes())
    }
}

/// Which message one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// By its producer's number.
    Number(Numbered),
    /// By the id that its client gave it.
    Id(DuplicateId),
}

/// The same, as others that are sent compare with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IdentityKey {
    /// See [`Identity::Number`].
    Number(ProducerId, u64),
    /// See [`Identity::Id`].
    Id(DuplicateId),
}

impl Identity {
    /// What others compare with.
    #[must_use]
    pub fn key(&self) -> IdentityKey {
        match self {
            Identity::Number(Numbered { producer, number, .. }) => IdentityKey::Number(*producer, *number),
            Identity::Id(id) => IdentityKey::Id(*id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_an_id_is_the_one_that_stores_have() {
        let known: [(&[u8], u128); 3] = [
            (b"", 0x5049_d747_80a3_e07d_4202_ab47_d4ce_f2f4),
            (b"order 1", 0x647b_215f_e539_f98c_00ac_9cf5_9ed1_9801),
            (b"0123456789abcdefgh", 0xed52_e12c_bbd0_424f_34a7_b73c_745a_523b),
        ];
        for (id, hash) in known {
            assert_eq!(DuplicateId::of(id).0, hash.to_be_bytes());
        }
    }
}
