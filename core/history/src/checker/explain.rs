//! How many messages operations can explain: each message needs one of some operations, each operation has room for so many messages.

/// Messages and the operations that explain them. Whether a message finds room does not depend on the order in which others came: those
/// move on if they can (augmenting paths).
#[derive(Debug)]
pub(super) struct Explanation {
    /// For how many messages each has room; `None`: for any number.
    room: Vec<Option<u64>>,
    /// By operation: its messages.
    taken: Vec<Vec<u32>>,
    /// By message: the operations that can explain it.
    can: Vec<Vec<u32>>,
}

impl Explanation {
    pub(super) fn new(room: impl Iterator<Item = Option<u64>>) -> Explanation {
        let room: Vec<_> = room.collect();
        Explanation { taken: vec![Vec::new(); room.len()], room, can: Vec::new() }
    }

    /// A message that one of these has to explain. False: there is no room.
    pub(super) fn find(&mut self, operations: Vec<u32>) -> bool {
        let message = self.can.len() as u32;
        self.can.push(operations);
        let mut visited = vec![false; self.room.len()];
        self.place(message, &mut visited)
    }

    fn place(&mut self, message: u32, visited: &mut [bool]) -> bool {
        for at in 0..self.can[message as usize].len() {
            let operation = self.can[message as usize][at] as usize;
            if std::mem::replace(&mut visited[operation], true) {
                continue;
            }
            if self.room[operation].is_none_or(|room| (self.taken[operation].len() as u64) < room) {
                self.taken[operation].push(message);
                return true;
            }
            for slot in 0..self.taken[operation].len() {
                let other = self.taken[operation][slot];
                if self.place(other, visited) {
                    self.taken[operation][slot] = message;
                    return true;
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_move_on_to_make_room() {
        let mut explanation = Explanation::new([Some(1), Some(1), None].into_iter());
        assert!(explanation.find(vec![0, 1]));
        assert!(explanation.find(vec![0]), "the first moves to 1");
        assert!(!explanation.find(vec![0, 1]), "there are two places for three");
        assert!(explanation.find(vec![1, 2]) && explanation.find(vec![2]), "2 takes any number");
        assert!(!explanation.find(vec![]));
    }
}
