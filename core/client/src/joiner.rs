//! Whole messages of one receiver's frames.

use alloc::vec::Vec;
use packhorse_amqp10::engine::TransferEvent;

/// Joins the frames of one link's deliveries. A message of one frame is handed through without a copy; the buffer for
/// longer ones is kept from message to message.
#[derive(Debug, Default)]
pub struct Joiner {
    held: Vec<u8>,
}

impl Joiner {
    /// Takes a frame; returns the message when it was the last of one. Frames of one link never interleave.
    pub fn push<'a>(&'a mut self, transfer: &TransferEvent<'a>) -> Option<&'a [u8]> {
        if transfer.first {
            self.held.clear();
        }
        if transfer.aborted {
            self.held.clear();
            return None;
        }
        if transfer.first && transfer.last {
            return Some(transfer.payload);
        }
        self.held.extend_from_slice(transfer.payload);
        transfer.last.then_some(&self.held)
    }
}
