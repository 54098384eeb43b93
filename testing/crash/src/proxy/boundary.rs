//! Where frames begin in a stream of AMQP: a header of eight bytes, or a frame that begins with its size.

/// Bytes of a frame, or of a protocol header, that tell its size.
const HEAD_BYTES: usize = 4;
/// Bytes of a protocol header.
const PROTOCOL_BYTES: u64 = 8;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Boundary {
    head: [u8; HEAD_BYTES],
    known: usize,
    /// Bytes left of the frame after its head.
    left: u64,
    /// All bytes so far.
    position: u64,
    /// A size that none can have: there is nothing to tell any more.
    lost: bool,
}

impl Boundary {
    /// Goes over the next bytes of the stream; tells of each frame whose size is now known: where it begins, and its size.
    pub(super) fn pass(&mut self, mut bytes: &[u8], mut on: impl FnMut(u64, u64)) {
        while !bytes.is_empty() && !self.lost {
            if self.left > 0 {
                let skipped = self.left.min(bytes.len() as u64);
                (self.left, self.position) = (self.left - skipped, self.position + skipped);
                bytes = &bytes[skipped as usize..];
                continue;
            }
            self.head[self.known] = bytes[0];
            (self.known, self.position, bytes) = (self.known + 1, self.position + 1, &bytes[1..]);
            if self.known == HEAD_BYTES {
                let size = if &self.head == b"AMQP" { PROTOCOL_BYTES } else { u32::from_be_bytes(self.head).into() };
                self.lost = size < PROTOCOL_BYTES;
                if !self.lost {
                    on(self.position - HEAD_BYTES as u64, size);
                    (self.known, self.left) = (0, size - HEAD_BYTES as u64);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_however_their_bytes_come() {
        let mut stream = b"AMQP\x03\x01\x00\x00".to_vec();
        stream.extend_from_slice(&[0, 0, 0, 8, 2, 0, 0, 0]);
        stream.extend_from_slice(&[&[0, 0, 1, 4, 2, 0, 0, 0][..], &[7; 252]].concat());
        stream.extend_from_slice(&[0, 0, 0, 9]);
        for step in [1, 3, 7, 300] {
            let (mut boundary, mut found) = (Boundary::default(), Vec::new());
            stream.chunks(step).for_each(|bytes| boundary.pass(bytes, |start, size| found.push((start, size))));
            assert_eq!(found, [(0, 8), (8, 8), (16, 260), (276, 9)], "{step} bytes at once");
        }
    }

    #[test]
    fn what_is_no_frame_is_told_once_and_no_more() {
        let mut boundary = Boundary::default();
        boundary.pass(&[0; 1_000], |start, size| panic!("a frame of {size} at {start}"));
    }
}
