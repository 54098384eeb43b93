//! A well-behaved producer and consumer that work all the time while something else is done to the broker.

use crate::books::Books;
use crate::broker::pause;
use crate::load::{Consumer, Producer};
use crate::wire::Broken;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the pair may stand still before that is an error; generous, for machines that do other things as well.
const STILL: Duration = Duration::from_secs(30);

/// See the module. Its queue is `well-behaved`.
pub struct Pair {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicBool>,
    confirmed: Arc<AtomicU64>,
    received: Arc<AtomicU64>,
    producer: JoinHandle<(Producer, Result<(), Broken>)>,
    consumer: JoinHandle<(Consumer, Result<(), Broken>)>,
}

impl Pair {
    /// Starts both.
    pub fn start(to: SocketAddr) -> Pair {
        let [stop, done] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let [confirmed, received] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
        let producer = {
            let (stop, confirmed) = (Arc::clone(&stop), Arc::clone(&confirmed));
            std::thread::spawn(move || {
                let mut producer = Producer::new(1, "well-behaved", 16, 200);
                // They are to be there, not to take the machine.
                producer.pace = Some(Duration::from_millis(2));
                let end = producer.run(to, &stop, &confirmed);
                (producer, end)
            })
        };
        let consumer = {
            let (done, received) = (Arc::clone(&done), Arc::clone(&received));
            std::thread::spawn(move || {
                let mut consumer = Consumer::new("well-behaved", 32);
                let end = consumer.run(to, &done, &received);
                (consumer, end)
            })
        };
        Pair { stop, done, confirmed, received, producer, consumer }
    }

    /// Returns when both have got further; an error if one has ended or stands still.
    pub fn goes_on(&self) -> Result<(), String> {
        let begin = (self.confirmed.load(Ordering::Relaxed), self.received.load(Ordering::Relaxed));
        let until = Instant::now() + STILL;
        loop {
            let now = (self.confirmed.load(Ordering::Relaxed), self.received.load(Ordering::Relaxed));
            if now.0 > begin.0 && now.1 > begin.1 {
                return Ok(());
            }
            if self.producer.is_finished() || self.consumer.is_finished() {
                return Err(format!("the well-behaved pair has ended after {now:?} messages"));
            }
            if Instant::now() > until {
                return Err(format!("the well-behaved pair stands still at {now:?} messages"));
            }
            pause(Duration::from_millis(1));
        }
    }

    /// Messages confirmed so far.
    pub fn confirmed(&self) -> u64 {
        self.confirmed.load(Ordering::Relaxed)
    }

    /// Stops both in order. The books, or why one of them ended before.
    pub fn finish(self) -> Result<Books, String> {
        self.stop.store(true, Ordering::Relaxed);
        let (producer, end) = self.producer.join().map_err(|_| "the producer panicked")?;
        end.map_err(|broken| format!("producer: {broken:?}"))?;
        let until = Instant::now() + STILL;
        while self.received.load(Ordering::Relaxed) < producer.sent.len() as u64
            && !self.consumer.is_finished()
            && Instant::now() < until
        {
            pause(Duration::from_millis(1));
        }
        self.done.store(true, Ordering::Relaxed);
        let (consumer, end) = self.consumer.join().map_err(|_| "the consumer panicked")?;
        end.map_err(|broken| format!("consumer: {broken:?}"))?;
        Ok(Books { sent: [(producer.id, producer.sent)].into(), received: consumer.received, orderly: Vec::new() })
    }
}
