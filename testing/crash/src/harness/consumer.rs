//! A consuming client: holds deliveries, ends them in every way there is, loses its links in every way there is, over all lives
//! of the broker, and writes down what it did and saw.

use super::clock::now_ns;
use super::diary::Diary;
use super::flow::{Figures, Place, Stage};
use super::intake::{In, Standing};
use super::line::{Line, Lost, READ_BYTES, Read};
use super::options::ClientOptions;
use super::orders::{self, Order, Orders};
use crate::Random;
use packhorse_client_core::{Client, Event as Told, Misuse, ReceiverOptions, SessionId};
use packhorse_history::Event;
use std::time::Duration;

/// Between two attempts to connect.
const RETRY: Duration = Duration::from_millis(3);
/// Longest wait while nothing happens.
const NAP: Duration = Duration::from_millis(20);
/// Between two ticks of the history, at least.
const TICK_NS: u64 = 50_000_000;

/// What goes wrong on purpose.
#[derive(Clone, Copy, Debug)]
enum Mischief {
    /// The socket is closed without a word.
    Cut,
    /// The connection is closed in order, with deliveries open.
    Close,
    /// A link is ended in order, after what is on its way has come, with deliveries open.
    Drain(usize),
    /// A link is ended in order while deliveries are on their way.
    Detach(usize),
    /// Nothing is read for a while.
    Sleep(u64),
}

struct Consumer<'a> {
    options: &'a ClientOptions,
    random: Random,
    diary: Diary,
    place: Place,
    ins: Vec<In>,
    session: Option<SessionId>,
    links: u32,
    done: u64,
    stage: Stage,
    /// `Hold` until it is carried out; `End` from then on.
    order: Option<Order>,
    closing: bool,
    mischief_at: u64,
    asleep_until: u64,
    ticked_at: u64,
    failure: Option<String>,
}

/// Runs until it is told to end. Err: it cannot go on; a sentence.
pub fn run(options: &ClientOptions) -> Result<(), String> {
    let name = format!("consumer-{}", options.number);
    let mut random = Random::new(options.seed);
    let mut ins: Vec<In> = options.queue.iter().map(|queue| In::draw(queue, &mut random)).collect();
    ins.extend(options.once.iter().map(|queue| In::once(queue)));
    let consumer = Consumer {
        options,
        diary: Diary::begin(&options.history, &name, options.run)?,
        place: Place::open(&options.flow, options.number).map_err(|e| format!("cannot show figures: {e}"))?,
        ins,
        session: None,
        links: 0,
        done: 0,
        stage: Stage::Working,
        order: None,
        closing: false,
        mischief_at: now_ns() + random.number() % 1_500_000_000,
        asleep_until: 0,
        ticked_at: 0,
        failure: None,
        random,
    };
    consumer.work(&name)
}

impl Consumer<'_> {
    fn work(mut self, name: &str) -> Result<(), String> {
        let mut orders = Orders::default();
        let mut buffer = vec![0; READ_BYTES];
        let mut line: Option<Line> = None;
        loop {
            match orders.next()? {
                Some(Order::Finish) => (self.order, self.stage) = (None, Stage::Finishing),
                Some(order) => self.order = Some(order),
                None => {}
            }
            if line.is_none() && self.order != Some(Order::End) {
                line = Line::open(self.options.to, name).ok();
            }
            let Some(open) = &mut line else {
                if self.order == Some(Order::End) {
                    break;
                }
                self.tick()?;
                self.diary.flush()?;
                orders::wait(RETRY);
                continue;
            };
            let turn = self.turn(open, &mut buffer);
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
            if turn.is_err() {
                line = None;
                self.lost()?;
                if self.closing {
                    self.closing = false;
                    if self.order == Some(Order::End) {
                        break;
                    }
                }
            }
            if self.order == Some(Order::Hold) && self.ins.iter().all(In::is_gone) {
                self.stage = Stage::Held;
            }
            let open = self.ins.iter().map(In::open).sum();
            let figures = Figures { done: self.done, open, stage: self.stage };
            self.place.show(figures).map_err(|e| format!("cannot show figures: {e}"))?;
        }
        self.diary.tell(&Event::End)
    }

    /// Everything that had come is recorded, unless a message has come in part.
    fn tick(&mut self) -> Result<(), String> {
        let now = now_ns();
        if now - self.ticked_at >= TICK_NS && !self.ins.iter().any(In::is_midway) {
            self.ticked_at = now;
            self.diary.put(now, &Event::Tick)?;
        }
        Ok(())
    }

    fn keep<T>(&mut self, result: Result<T, String>) -> Result<T, Lost> {
        // A failure of our own ends the process, not the connection alone.
        result.inspect_err(|failure| self.failure = Some(failure.clone()))
    }

    /// Reads, acts, writes, waits. Err: the connection is gone.
    fn turn(&mut self, line: &mut Line, buffer: &mut [u8]) -> Result<(), Lost> {
        let now = now_ns();
        if now < self.asleep_until {
            orders::wait(Duration::from_nanos((self.asleep_until - now).min(20_000_000)));
            return Ok(());
        }
        let read = line.read(buffer, |client, event| self.on(client, event))?;
        if read == Read::All {
            let ticked = self.tick();
            self.keep(ticked)?;
        }
        if !self.closing {
            if now >= self.mischief_at && self.stage == Stage::Working && self.order.is_none() {
                self.mischief_at = now + 200_000_000 + self.random.number() % 2_500_000_000;
                self.mischief(line)?;
            }
            self.keep_links(line)?;
        }
        let flushed = self.diary.flush();
        self.keep(flushed)?;
        let written = line.write()?;
        line.tick()?;
        if read == Read::All {
            line.wait(!written, NAP);
        }
        Ok(())
    }

    fn mischief(&mut self, line: &mut Line) -> Result<(), Lost> {
        let which = self.random.below(self.ins.len());
        let mischief = match self.random.below(8) {
            0 | 1 => Mischief::Cut,
            2 => Mischief::Close,
            3 | 4 => Mischief::Drain(which),
            5 => Mischief::Detach(which),
            _ => Mischief::Sleep(20_000_000 + self.random.number() % 200_000_000),
        };
        match mischief {
            Mischief::Cut => return Err("cut on purpose".into()),
            Mischief::Close => self.close(line)?,
            Mischief::Drain(which) => {
                let drained = self.ins[which].drain(&mut line.client);
                self.keep(drained)?;
            }
            Mischief::Detach(which) => {
                let detached = self.ins[which].detach(&mut line.client, &mut self.diary);
                self.keep(detached)?;
            }
            Mischief::Sleep(ns) => self.asleep_until = now_ns() + ns,
        }
        Ok(())
    }

    /// Closes the connection in order: what is open goes back.
    fn close(&mut self, line: &mut Line) -> Result<(), Lost> {
        self.closing = true;
        for index in 0..self.ins.len() {
            let ended = self.ins[index].ends(&mut self.diary, true);
            self.keep(ended)?;
        }
        let flushed = self.diary.flush();
        self.keep(flushed)?;
        let now_ms = line.now_ms();
        line.client.close(now_ms).map_err(misuse)
    }

    /// Attaches what is to stand, ends deliveries, and carries out orders.
    fn keep_links(&mut self, line: &mut Line) -> Result<(), Lost> {
        let Some(session) = self.session else { return Ok(()) };
        let ending = self.order.is_some();
        for index in 0..self.ins.len() {
            let input = &mut self.ins[index];
            let result = match input.standing {
                Standing::None if !ending => {
                    input.number = self.options.link_number(self.links);
                    self.links += 1;
                    let attached = input.attach(&mut self.diary).map(|()| {
                        let name = format!("in-{index}");
                        let options = ReceiverOptions {
                            name: &name,
                            address: &input.queue,
                            presettled: input.presettled,
                            credit: input.credit,
                            token: index as u64,
                        };
                        let careful = input.careful;
                        let client = &mut line.client;
                        if careful {
                            client.careful_receiver(session, &options)
                        } else {
                            client.receiver(session, &options)
                        }
                    });
                    match attached {
                        Ok(link) => {
                            self.ins[index].link = Some(link.map_err(misuse)?);
                            Ok(())
                        }
                        Err(failure) => Err(failure),
                    }
                }
                Standing::Up => {
                    let finishing = self.stage == Stage::Finishing || ending;
                    let settled = if finishing {
                        input.finish(&mut line.client, &mut self.diary)
                    } else {
                        input.settle(&mut line.client, &mut self.diary, &mut self.random)
                    };
                    // Orders are carried out when all answers are there, so that nothing is under way.
                    settled.and_then(|()| match ending && input.is_answered() {
                        true => input.drain(&mut line.client),
                        false => input.grant(&mut line.client, &mut self.diary),
                    })
                }
                Standing::Drained => input.detach(&mut line.client, &mut self.diary),
                _ => Ok(()),
            };
            self.keep(result)?;
        }
        if self.order == Some(Order::End) && self.ins.iter().all(In::is_gone) {
            self.close(line)?;
        }
        Ok(())
    }

    fn on(&mut self, client: &mut Client, event: Told<'_>) -> Result<(), Lost> {
        let result = match event {
            Told::Opened(_) => {
                self.session = Some(client.begin(0).map_err(misuse)?);
                Ok(())
            }
            Told::Attached { token, .. } => {
                self.ins[token as usize].stands();
                Ok(())
            }
            Told::Message(transfer) => {
                self.ins[transfer.token as usize].receive(&transfer, self.options.run, &mut self.diary)
            }
            Told::Drained { token, .. } => self.ins[token as usize].drained(&mut self.diary),
            Told::Confirmed => {
                let at = now_ns();
                let mut all = Ok(());
                for outcome in client.outcomes() {
                    match self.ins[outcome.link_token as usize].confirmed(at, outcome.delivery_id, &mut self.diary) {
                        Ok(acknowledged) => self.done += u64::from(acknowledged),
                        Err(failure) => all = Err(failure),
                    }
                }
                all
            }
            Told::LinkLost(lost) => {
                let input = &mut self.ins[lost.token as usize];
                if !matches!(input.standing, Standing::Ending | Standing::Closing) {
                    return Err(format!("the broker ended a link: {}", lost.reason));
                }
                input.ended(&lost.reason, &mut self.diary)
            }
            _ => Ok(()),
        };
        self.keep(result)
    }

    /// The connection is gone.
    fn lost(&mut self) -> Result<(), String> {
        self.session = None;
        for input in &mut self.ins {
            input.ends(&mut self.diary, false)?;
        }
        self.diary.flush()
    }
}

fn misuse(misuse: Misuse) -> Lost {
    misuse.to_string()
}
