//! Everything that waits for the disk, in one FIFO: a ticket and what is due when it is durable (`architecture.md` §2,
//! "One journal for all shards"). Waiting is a number here, not a closure; due work is released in one place, in order.

use packhorse_store::Ticket;
use std::collections::VecDeque;

/// Work of type `W` that is due once a ticket is durable.
#[derive(Debug)]
pub(crate) struct Confirms<W> {
    waiting: VecDeque<(Ticket, W)>,
    durable: Ticket,
}

impl<W> Confirms<W> {
    pub(crate) fn new() -> Confirms<W> {
        Confirms { waiting: VecDeque::new(), durable: Ticket(0) }
    }

    /// The last durable ticket.
    pub(crate) fn durable(&self) -> Ticket {
        self.durable
    }

    /// How much waits.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.waiting.len()
    }

    /// `work` is due when `after` is durable. Tickets come in ascending order.
    pub(crate) fn wait(&mut self, after: Ticket, work: W) {
        debug_assert!(self.waiting.back().is_none_or(|(last, _)| *last <= after), "tickets ascend");
        self.waiting.push_back((after, work));
    }

    /// The work added last, if it waits for the same ticket: it may be made to cover more.
    pub(crate) fn last_mut(&mut self, after: Ticket) -> Option<&mut W> {
        self.waiting.back_mut().filter(|(ticket, _)| *ticket == after).map(|(_, work)| work)
    }

    /// The store says that everything up to here is durable.
    pub(crate) fn durable_up_to(&mut self, ticket: Ticket) {
        debug_assert!(ticket >= self.durable, "what was durable stays durable");
        self.durable = ticket;
    }

    /// The next due work, in the order it was added.
    pub(crate) fn release(&mut self) -> Option<W> {
        if self.waiting.front()?.0 > self.durable {
            return None;
        }
        self.waiting.pop_front().map(|(_, work)| work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_released_in_order_and_never_before_its_ticket() {
        let mut confirms = Confirms::new();
        for (ticket, work) in [(1, 'a'), (1, 'b'), (2, 'c'), (4, 'd')] {
            confirms.wait(Ticket(ticket), work);
        }
        assert_eq!(confirms.release(), None);
        confirms.durable_up_to(Ticket(2));
        assert_eq!([confirms.release(), confirms.release(), confirms.release()], [Some('a'), Some('b'), Some('c')]);
        assert_eq!(confirms.release(), None);
        confirms.durable_up_to(Ticket(3));
        assert_eq!((confirms.release(), confirms.len()), (None, 1));
        confirms.durable_up_to(Ticket(4));
        assert_eq!(confirms.release(), Some('d'));
    }
    #[test]
    fn only_the_last_work_of_the_same_ticket_may_cover_more() {
        let mut confirms = Confirms::new();
        assert_eq!(confirms.last_mut(Ticket(1)), None);
        confirms.wait(Ticket(1), 'a');
        confirms.wait(Ticket(1), 'b');
        assert_eq!(confirms.last_mut(Ticket(1)), Some(&mut 'b'), "not the first of that ticket");
        assert_eq!(confirms.last_mut(Ticket(2)), None, "what waits for an earlier ticket is due too early for it");
        confirms.wait(Ticket(2), 'c');
        assert_eq!(confirms.last_mut(Ticket(1)), None, "nothing may be added behind what waits for a later one");
        assert_eq!(confirms.last_mut(Ticket(2)), Some(&mut 'c'));
    }
}
