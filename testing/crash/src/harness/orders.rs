//! What the coordinator tells a client: one word a line on the client's standard input.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// An order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Give up all links in order, and wait.
    Hold,
    /// Take everything that comes and accept it.
    Finish,
    /// Come to an end in order.
    End,
}

impl Order {
    /// The word for it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Order::Hold => "hold",
            Order::Finish => "finish",
            Order::End => "end",
        }
    }

    fn read(word: &str) -> Result<Order, String> {
        let all = [Order::Hold, Order::Finish, Order::End];
        all.into_iter().find(|order| order.word() == word).ok_or_else(|| format!("`{word}` is no order"))
    }
}

/// Standard input, as orders.
#[derive(Debug, Default)]
pub(super) struct Orders {
    held: Vec<u8>,
}

impl Orders {
    /// The next order, if one is there. Err: the coordinator is gone, or says what nobody understands.
    pub(super) fn next(&mut self) -> Result<Option<Order>, String> {
        if let Some(order) = self.held_order()? {
            return Ok(Some(order));
        }
        let mut stdin = [PollFd::from_borrowed_fd(input(), PollFlags::IN)];
        if !matches!(poll(&mut stdin, Some(&Timespec::default())), Ok(1)) {
            return Ok(None);
        }
        let mut bytes = [0; 64];
        match rustix::io::read(input(), &mut bytes) {
            Ok(0) => Err("the coordinator is gone".into()),
            Ok(count) => {
                self.held.extend_from_slice(&bytes[..count]);
                self.held_order()
            }
            Err(Errno::INTR | Errno::AGAIN) => Ok(None),
            Err(e) => Err(format!("cannot read orders: {e}")),
        }
    }

    fn held_order(&mut self) -> Result<Option<Order>, String> {
        let Some(end) = self.held.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
        let line: Vec<u8> = self.held.drain(..=end).collect();
        Order::read(String::from_utf8_lossy(&line).trim()).map(Some)
    }
}

/// Standard input, to wait for.
pub(super) fn input() -> BorrowedFd<'static> {
    rustix::stdio::stdin()
}

/// Waits until there is an order, or for so long.
pub(super) fn wait(most: Duration) {
    let mut stdin = [PollFd::from_borrowed_fd(input(), PollFlags::IN)];
    let timeout = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() };
    // Interrupted or not: the caller looks again.
    let _ = poll(&mut stdin, Some(&timeout));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_in_pieces() {
        let mut orders = Orders { held: b"hold\nfin".to_vec() };
        assert_eq!(orders.held_order(), Ok(Some(Order::Hold)));
        assert_eq!(orders.held_order(), Ok(None));
        orders.held.extend_from_slice(b"ish\nnonsense\n");
        assert_eq!(orders.held_order(), Ok(Some(Order::Finish)));
        assert!(orders.held_order().is_err());
    }
}
