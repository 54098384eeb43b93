//! Ends and starts of brokers: killed, without power, failed, stopped in order; refused starts, and when a refusal is right.

use super::{Due, World};
use crate::fault::Kind;
use crate::net::Way;
use crate::seam::Death;
use crate::verdict::Breach;
use packhorse_broker::Input;
use packhorse_history::{BrokerChange, Event};
use packhorse_journal::JournalError;
use packhorse_journal::sim::{CrashMode, SimDisk, When};
use packhorse_model::ShardId;

/// How a process ends by force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// kill -9, or by itself: what the system has of its files stays.
    Process(CrashMode),
    /// Without power.
    Power(CrashMode),
}

impl World {
    /// Brokers are told apart in the history from the first event on.
    pub(super) fn tell_whose_queues(&mut self) {
        for (number, host) in self.hosts.iter().enumerate() {
            for queue in host.setup.queues.iter().map(String::as_str).chain(["DLQ"]) {
                let queue = crate::books::queue_name(number, queue);
                self.books.put(self.book, &Event::Host { queue: &queue, broker: &host.name });
            }
        }
    }

    fn tell_change(&mut self, host: usize, change: BrokerChange) {
        self.books.put(self.book, &Event::Node { broker: &self.hosts[host].name, change });
    }

    /// The process ends by force; `damage` is done to its disk before it starts again. Answers whether it ran.
    pub(super) fn end(&mut self, host: usize, end: End, damage: impl FnOnce(&mut SimDisk)) -> bool {
        if !self.hosts[host].is_up() {
            return false;
        }
        self.tell_change(host, BrokerChange::Kill);
        self.gone(host, end);
        self.hosts[host].with_disk(damage);
        let wait = self.draw.range(2_000, 80_000);
        self.start_in(host, wait);
        true
    }

    /// The process ends by force, as a script says.
    pub(super) fn die(&mut self, host: usize, death: Death) {
        let end = match death {
            Death::Kill => End::Process(CrashMode::Kill),
            Death::Power(mode) => End::Power(mode),
        };
        self.end(host, end, |_| {});
    }

    /// The process has ended by itself, for its store has failed.
    pub(super) fn exit_failed(&mut self, host: usize, what: &str) {
        self.tell_change(host, BrokerChange::Exit(Some(70)));
        self.exits.push(70);
        self.look_for_struck(host);
        if !self.disk_is_ill(host) {
            let name = &self.hosts[host].name;
            self.breaches.push(Breach::new("exit", format!("{name} ended with 70 and no disk failed: {what}")));
        }
        self.gone(host, End::Process(CrashMode::Kill));
        let wait = self.draw.range(2_000, 80_000);
        self.start_in(host, wait);
    }

    fn gone(&mut self, host: usize, end: End) {
        let seed = self.draw.next();
        let (mode, power) = match end {
            End::Process(mode) => (mode, false),
            End::Power(mode) => (mode, true),
        };
        self.hosts[host].end(|disk| disk.crash(mode, seed));
        self.operators.ended(host);
        self.close_streams(host, power);
    }

    /// All streams of the process that was are over. A machine without power says nothing.
    fn close_streams(&mut self, host: usize, power: bool) {
        let life = self.hosts[host].starts;
        for stream in 0..self.net.count() {
            let one = self.net.get_mut(stream);
            if one.host != host || one.life != life || one.forgotten {
                continue;
            }
            one.ghost = power;
            if !power {
                let at = self.net.end(self.now_us, stream, Way::ToClient);
                self.arm_net(at, stream, Way::ToClient);
            }
            self.forget(stream);
        }
    }

    pub(super) fn start_in(&mut self, host: usize, us: u64) {
        let at = self.now_us + us;
        self.hosts[host].starts_at = Some(at);
        self.at(at, Due::Start(host));
    }

    /// Starts a broker. A refusal is right if its disk is ill or full.
    pub(super) fn start(&mut self, host: usize) {
        if self.hosts[host].is_up() || self.hosts[host].starts_at != Some(self.now_us) {
            return;
        }
        // The machine has power again, and says of its old streams that it does not know them.
        for stream in 0..self.net.count() {
            let one = self.net.get_mut(stream);
            if one.host == host && std::mem::take(&mut one.ghost) {
                let at = self.net.end(self.now_us, stream, Way::ToClient);
                self.arm_net(at, stream, Way::ToClient);
            }
        }
        match self.hosts[host].start(self.now_us) {
            Ok(()) => {
                self.hosts[host].with_disk(SimDisk::crash_never);
                self.look_for_struck(host);
                self.tell_change(host, BrokerChange::Start);
                self.healthy(host);
                self.advance(host);
                self.want_turn(host, 1);
            }
            Err(error) => {
                self.look_for_struck(host);
                self.refused(host, &error);
            }
        }
    }

    /// Undoes what was flipped in confirmed blocks. False: nothing of it is there.
    fn brought_back(&mut self, host: usize) -> bool {
        let flipped = std::mem::take(&mut self.hosts[host].flipped);
        self.hosts[host].with_disk(|disk| flipped.into_iter().filter(|one| one.undo(disk)).count() > 0)
    }

    fn refused(&mut self, host: usize, error: &JournalError) {
        self.note(|world| format!("{} is refused: {error}", world.hosts[host].name));
        let seed = self.draw.next();
        if self.hosts[host].with_disk(|disk| disk.crashed()) {
            // The power went in the middle of it.
            let drawn = [CrashMode::Lose, CrashMode::Torn(512), CrashMode::Torn(4096), CrashMode::Torn(usize::MAX)]
                [(seed % 4) as usize];
            let mode = match self.hosts[host].seam.take_then() {
                Some(Death::Kill) => CrashMode::Kill,
                Some(Death::Power(mode)) => mode,
                None => drawn,
            };
            let disk = self.hosts[host].disk.take().expect("it was refused");
            self.hosts[host].disk = Some(disk.crash(mode, seed));
        } else if error.exit_code() == 65 && self.brought_back(host) {
            // A block that was confirmed is damaged: the operator brings back the file.
            self.hit(Kind::FlipHeader);
        } else if !(self.disk_is_ill(host) && error.exit_code() == 70) {
            let name = &self.hosts[host].name;
            let what = format!("{name} does not start ({}), and its disk is no reason: {error}", error.exit_code());
            self.breaches.push(Breach::new("start", what));
        }
        if self.breaches.len() > 5 {
            // What it holds is lost for everybody, as if its queues were empty.
            self.drained_at(host);
            self.phase = super::Phase::Done;
            return;
        }
        // What the system remembers of a disk that failed goes with the next attempt as it does in a restart.
        let disk = self.hosts[host].disk.take().expect("it was refused");
        self.hosts[host].disk = Some(disk.crash(CrashMode::Kill, seed));
        let wait = self.draw.range(10_000, 100_000);
        self.start_in(host, wait);
    }

    /// The power goes again at some operation of the next start.
    pub(super) fn power_in_recovery(&mut self, host: usize, dice: u64) {
        let when = [When::Before, When::During, When::After][(dice % 3) as usize];
        self.hosts[host].with_disk(|disk| disk.crash_at(1 + dice / 3 % 60, when));
    }

    /// Asks a broker to stop in order.
    pub(super) fn ask_to_stop(&mut self, host: usize) {
        self.hosts[host].catch_up(self.now_us);
        let now = self.hosts[host].now(self.now_us);
        let shards = self.hosts[host].setup.shards;
        let mut effects = Vec::new();
        let Some(life) = self.hosts[host].life.as_mut().filter(|life| life.stopping.is_none()) else { return };
        life.stopping = Some(0);
        let inputs = (0..shards).map(|shard| (ShardId(shard), Input::Stop));
        life.node.turn(inputs, now, &mut effects);
        self.obey(host, &mut effects);
        self.advance(host);
    }

    /// A shard has stopped.
    pub(super) fn stopped(&mut self, host: usize) {
        let shards = self.hosts[host].setup.shards;
        let Some(life) = &mut self.hosts[host].life else { return };
        let said = life.stopping.unwrap_or(0) + 1;
        life.stopping = Some(said);
        if said == shards {
            self.at(self.now_us, Due::Heal(super::trouble::STOPPED + host));
        }
    }

    /// All shards of a broker have stopped.
    pub(super) fn all_stopped(&mut self, host: usize) {
        let shards = self.hosts[host].setup.shards;
        if self.hosts[host].life.as_ref().is_none_or(|life| life.stopping != Some(shards)) {
            return;
        }
        self.hosts[host].stop();
        self.operators.ended(host);
        self.tell_change(host, BrokerChange::Exit(Some(0)));
        self.exits.push(0);
        self.close_streams(host, false);
        let wait = self.draw.range(1_000, 60_000);
        self.start_in(host, wait);
    }
}
