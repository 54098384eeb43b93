//! Bodies that check themselves: number, time of sending, a filler that follows from the number, a CRC over all.

/// Bytes of the fixed part: CRC, number, time.
pub(crate) const HEAD_BYTES: usize = 24;

/// Writes the body of message `number`.
pub(crate) fn fill(body: &mut [u8], number: u64, sent_ns: u64) {
    body[8..16].copy_from_slice(&number.to_be_bytes());
    body[16..24].copy_from_slice(&sent_ns.to_be_bytes());
    let pattern = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    for chunk in body[HEAD_BYTES..].chunks_mut(8) {
        chunk.copy_from_slice(&pattern[..chunk.len()]);
    }
    let crc = crc32c::crc32c(&body[8..]);
    body[..8].copy_from_slice(&u64::from(crc).to_be_bytes());
}

/// Reads a body back: its number and time of sending, or what is wrong with it.
pub(crate) fn check(body: &[u8]) -> Result<(u64, u64), String> {
    if body.len() < HEAD_BYTES {
        return Err(format!("a body of {} bytes: at least {HEAD_BYTES} were sent", body.len()));
    }
    let word = |at: usize| u64::from_be_bytes(body[at..at + 8].try_into().expect("eight bytes"));
    let crc = u64::from(crc32c::crc32c(&body[8..]));
    if word(0) != crc {
        return Err(format!("message {}: its CRC is {crc:x}, {:x} was sent", word(8), word(0)));
    }
    Ok((word(8), word(16)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_body_is_found() {
        for size in [HEAD_BYTES, 25, 100, 1024] {
            let mut body = vec![0; size];
            fill(&mut body, 7, 99);
            assert_eq!(check(&body), Ok((7, 99)));
            for at in 0..size {
                body[at] ^= 1;
                assert!(check(&body).is_err(), "byte {at} of {size}");
                body[at] ^= 1;
            }
        }
    }
}
