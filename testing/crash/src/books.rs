//! The books: what producers sent and what became of it, what a consumer got; and the judge over both.
//!
//! The rules are I1 to I5 of the checker, for one consumer at a time that accepts everything.

use std::collections::BTreeMap;

/// Bytes of a body at least: run, producer, number, CRC.
pub(crate) const HEAD_BYTES: usize = 24;

/// Writes the body of a message: `size` bytes that say whose it is and check themselves.
pub(crate) fn body(producer: u32, number: u64, size: usize) -> Vec<u8> {
    let mut body = vec![(number as u8) ^ 0x5a; size.max(HEAD_BYTES)];
    body[4..8].copy_from_slice(b"pair");
    body[8..12].copy_from_slice(&producer.to_be_bytes());
    body[12..20].copy_from_slice(&number.to_be_bytes());
    let crc = crc32c::crc32c(&body[4..]);
    body[..4].copy_from_slice(&crc.to_be_bytes());
    body
}

/// Reads the body at the end of a message of ours: producer and number.
pub(crate) fn read_body(body: &[u8]) -> Result<(u32, u64), String> {
    if body.len() < HEAD_BYTES || &body[4..8] != b"pair" {
        return Err(format!("{} bytes that we never sent", body.len()));
    }
    let crc = crc32c::crc32c(&body[4..]).to_be_bytes();
    if body[..4] != crc {
        return Err(format!("{} bytes whose CRC is {crc:?}, not {:?}", body.len(), &body[..4]));
    }
    let producer = u32::from_be_bytes(body[8..12].try_into().expect("four bytes"));
    let number = u64::from_be_bytes(body[12..20].try_into().expect("eight bytes"));
    Ok((producer, number))
}

/// One message as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Who sent it.
    pub producer: u32,
    /// Which of theirs.
    pub number: u64,
    /// Earlier deliveries, as its header says.
    pub deliveries: u32,
    /// Lives of the broker before this one.
    pub life: u32,
    /// The broker said that our acknowledgement is safe.
    pub acknowledged: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Books {
    /// For each producer, how many it sent, and which of them were confirmed.
    pub sent: BTreeMap<u32, Vec<bool>>,
    /// In the order in which they came.
    pub received: Vec<Receipt>,
    /// Lives that ended in order: what a consumer had of them came back as if it had not been seen.
    pub orderly: Vec<u32>,
}

impl Books {
    /// Confirmed messages.
    pub fn confirmed(&self) -> usize {
        self.sent.values().flatten().filter(|confirmed| **confirmed).count()
    }

    /// Looks for everything that must not be; all violations, a line each.
    pub fn judge(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut seen: BTreeMap<(u32, u64), Receipt> = BTreeMap::new();
        let mut last: BTreeMap<u32, u64> = BTreeMap::new();
        for receipt in &self.received {
            let Receipt { producer, number, deliveries, life, .. } = *receipt;
            let sent = self.sent.get(&producer).map_or(0, Vec::len) as u64;
            if number >= sent {
                wrong.push(format!("phantom: message {number} of producer {producer}, which sent {sent}"));
            }
            if let Some(before) = seen.insert((producer, number), *receipt) {
                let returned = life > before.life && self.orderly.contains(&before.life);
                if before.acknowledged {
                    wrong.push(format!("again after a confirmed acknowledgement: {before:?}, then {receipt:?}"));
                } else if deliveries == 0 && !returned {
                    wrong.push(format!("silent duplicate: {before:?}, then {receipt:?}"));
                }
                continue;
            }
            if let Some(before) = last.insert(producer, number)
                && before > number
            {
                wrong.push(format!("order: message {number} of producer {producer} came after {before}"));
            }
        }
        for (producer, sent) in &self.sent {
            for (number, confirmed) in sent.iter().enumerate() {
                if *confirmed && !seen.contains_key(&(*producer, number as u64)) {
                    wrong.push(format!("lost: message {number} of producer {producer}, which was confirmed"));
                }
            }
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receipt(number: u64, deliveries: u32, life: u32) -> Receipt {
        Receipt { producer: 1, number, deliveries, life, acknowledged: false }
    }

    fn books(confirmed: &[bool], received: Vec<Receipt>) -> Vec<String> {
        let sent = BTreeMap::from([(1, confirmed.to_vec())]);
        Books { sent, received, orderly: vec![5] }.judge()
    }

    #[test]
    fn every_violation_is_found_and_nothing_else() {
        let fine = vec![receipt(0, 0, 0), receipt(2, 0, 0), receipt(2, 1, 1), receipt(3, 0, 1)];
        assert_eq!(books(&[true, false, true, true], fine.clone()), Vec::<String>::new());
        for (confirmed, received, word) in [
            (vec![true, true], vec![receipt(0, 0, 0)], "lost"),
            (vec![true], vec![receipt(0, 0, 0), receipt(1, 0, 0)], "phantom"),
            (vec![true, true], vec![receipt(1, 0, 0), receipt(0, 0, 0)], "order"),
            (vec![true], vec![receipt(0, 0, 0), receipt(0, 0, 1)], "silent duplicate"),
            (vec![true], vec![Receipt { acknowledged: true, ..receipt(0, 0, 0) }, receipt(0, 1, 1)], "again"),
        ] {
            let wrong = books(&confirmed, received);
            assert!(wrong.len() == 1 && wrong[0].contains(word), "{word}: {wrong:?}");
        }
        // What an orderly stop gave back may come as if for the first time.
        assert_eq!(books(&[true], vec![receipt(0, 0, 5), receipt(0, 0, 6)]), Vec::<String>::new());
    }

    #[test]
    fn a_changed_body_is_found() {
        for size in [HEAD_BYTES, 25, 100] {
            let mut bytes = body(3, 9, size);
            assert_eq!(read_body(&bytes), Ok((3, 9)));
            for at in 0..size {
                bytes[at] ^= 1;
                assert!(read_body(&bytes).is_err(), "byte {at} of {size}");
                bytes[at] ^= 1;
            }
        }
        assert!(read_body(b"short").is_err());
    }
}
