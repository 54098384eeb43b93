//! Commands to shards and their replies: a number a command, a one-shot a number.

use packhorse_broker::{Command, Reply};
use packhorse_model::ShardId;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;

/// Puts a command into a shard's mailbox and wakes the shard: `(shard, id, command)`.
type Post = dyn Fn(ShardId, u64, Command) + Send + Sync;

/// A shard did not answer in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoAnswer {
    /// How long it had.
    pub waited: Duration,
}

/// Asks shards. Shared by all requests; the reply may come from any thread.
pub struct Gateway {
    shards: u16,
    post: Box<Post>,
    patience: Duration,
    next: AtomicU64,
    waiting: Mutex<BTreeMap<u64, oneshot::Sender<Reply>>>,
}

impl Gateway {
    /// A gateway to `shards` shards; a reply may take as long as `patience`.
    pub fn new(
        shards: u16,
        patience: Duration,
        post: impl Fn(ShardId, u64, Command) + Send + Sync + 'static,
    ) -> Gateway {
        Gateway { shards, post: Box::new(post), patience, next: AtomicU64::new(1), waiting: Mutex::default() }
    }

    /// Number of shards.
    pub fn shards(&self) -> u16 {
        self.shards
    }

    /// Asks one shard.
    pub async fn ask(&self, shard: ShardId, command: Command) -> Result<Reply, NoAnswer> {
        let waiting = self.begin(shard, command);
        waiting.finish(self.patience).await
    }

    /// Asks every shard the same; the replies in the order of shards.
    pub async fn ask_each(&self, command: Command) -> Result<Vec<Reply>, NoAnswer> {
        // All are asked before the first is waited for.
        let asked: Vec<_> = (0..self.shards).map(|shard| self.begin(ShardId(shard), command.clone())).collect();
        let mut replies = Vec::with_capacity(asked.len());
        for waiting in asked {
            replies.push(waiting.finish(self.patience).await?);
        }
        Ok(replies)
    }

    /// Takes a reply from a shard. One that nobody waits for any more is dropped.
    pub fn reply(&self, id: u64, reply: Reply) {
        if let Some(sender) = self.lock().remove(&id) {
            // The request may have ended in this instant: then nobody listens, which is no fault.
            let _ = sender.send(reply);
        }
    }

    fn begin(&self, shard: ShardId, command: Command) -> Waiting<'_> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        self.lock().insert(id, sender);
        (self.post)(shard, id, command);
        Waiting { gateway: self, id, receiver }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, oneshot::Sender<Reply>>> {
        self.waiting.lock().expect("no panic under this lock: a panic ends the process")
    }
}

/// A command under way. Dropping it forgets the number, so that a request given up holds nothing.
struct Waiting<'g> {
    gateway: &'g Gateway,
    id: u64,
    receiver: oneshot::Receiver<Reply>,
}

impl Waiting<'_> {
    async fn finish(mut self, patience: Duration) -> Result<Reply, NoAnswer> {
        match tokio::time::timeout(patience, &mut self.receiver).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(_)) | Err(_) => Err(NoAnswer { waited: patience }),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.gateway.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_shard_that_does_not_answer_costs_the_request_and_nothing_else() {
        let gateway = Gateway::new(1, Duration::from_millis(1), |_, _, _| {});
        let answer = gateway.ask(ShardId(0), Command::Status).await;
        assert_eq!(answer, Err(NoAnswer { waited: Duration::from_millis(1) }));
        assert!(gateway.lock().is_empty());
        gateway.reply(1, Reply::Deleted { messages: 0 });
        assert!(gateway.lock().is_empty());
    }

    #[tokio::test]
    async fn replies_find_their_command_in_any_order() {
        let (sent, posted) = std::sync::mpsc::channel();
        let sent = Mutex::new(sent);
        let gateway = Gateway::new(2, Duration::from_secs(60), move |shard, id, _| {
            sent.lock().unwrap().send((shard, id)).unwrap()
        });
        let ask = gateway.ask_each(Command::Status);
        let answer = async {
            tokio::task::yield_now().await;
            let asked: Vec<_> = posted.try_iter().collect();
            for (shard, id) in asked.into_iter().rev() {
                gateway.reply(id, Reply::Deleted { messages: shard.0.into() });
            }
        };
        let (replies, ()) = tokio::join!(ask, answer);
        assert_eq!(replies.unwrap(), [Reply::Deleted { messages: 0 }, Reply::Deleted { messages: 1 }]);
    }
}
