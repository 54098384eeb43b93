//! Faults as they are carried out: each hits while work is in flight, or is put off until there is some.

use super::power::End;
use super::{Due, World};
use crate::client::{Person, Role, Stage};
use crate::damage;
use crate::draw::Draw;
use crate::fault::Kind;
use crate::net::Way;
use crate::plan::{Fault, HITS};
use crate::verdict::Occurred;
use packhorse_history::{Event, MessageId};
use packhorse_journal::sim::{CrashMode, Effect, Struck, Trouble, Verb};

/// Spells from here on are stops that are through.
pub(super) const STOPPED: usize = 1 << 40;

/// How long a fault that finds nothing in flight is put off, and how often.
const PUT_OFF_US: u64 = 4_000;
const PUT_OFF_MOST: u32 = 100;
/// So often even if nobody has anything to do any more.
const VAIN: u32 = 25;

/// So many faults come at once from the reserve, while each producing link has so many messages more.
const ENCORE: usize = 8;
const ENCORE_MESSAGES: u64 = 40;

/// Transactions that each client with transactions has then.
const ENCORE_TRANSACTIONS: u64 = 4;

/// What the end of a fault brings.
#[derive(Clone, Debug)]
pub(super) enum Cure {
    /// Nothing but that it is over.
    None,
    /// The process goes on.
    Continue,
    /// There is space again.
    Space,
    /// The disk is as quick as before.
    Quick,
    /// The wall clock is set a little, so often.
    Skew { by_ms: i64, left: u32 },
    /// A broken disk is replaced.
    Replace,
    /// A trouble that has not struck is taken away.
    Spare(u64),
}

/// A fault that lasts.
#[derive(Clone, Debug)]
pub(super) struct Spell {
    pub(super) host: usize,
    kind: Kind,
    name: String,
    cure: Cure,
    pub(super) over: bool,
    /// It has hit something, and is counted.
    counted: bool,
}

impl World {
    pub(super) fn arm_fault(&mut self) {
        if let Some(fault) = self.faults.last() {
            self.at(fault.at_us, Due::Fault);
        }
    }

    pub(super) fn hit(&mut self, kind: Kind) {
        self.hits[kind as usize] += 1;
    }

    pub(super) fn tell_fault(&mut self, name: &str, host: usize, start: bool) {
        let target = &self.hosts[host].name;
        self.books.put(self.book, &Event::Fault { kind: name, target, start });
        let kind = Kind::ALL.into_iter().find(|kind| name.split('#').next() == Some(kind.name()));
        if let Some(kind) = kind {
            self.coverage.change(kind, start);
        }
    }

    pub(super) fn next_fault(&mut self) {
        let Some(fault) = self.faults.last().copied() else { return };
        let ready = self.hosts[fault.host].is_running() && self.in_flight(fault.host) > 0;
        let done = ready && self.carry_out(fault);
        if done {
            let host = self.hosts[fault.host].name.clone();
            self.told.push(Occurred { number: fault.number, at_us: self.now_us, kind: fault.kind, host });
        }
        if done || self.put_off >= PUT_OFF_MOST || (self.put_off >= VAIN && self.is_vain(fault.host)) {
            self.faults.pop();
            self.put_off = 0;
            self.arm_fault();
        } else {
            self.put_off += 1;
            self.at(self.now_us + PUT_OFF_US, Due::Fault);
        }
    }

    /// Whether a broker runs and nobody has anything to do with it any more.
    fn is_vain(&self, host: usize) -> bool {
        let mut people = self.people.iter().filter(|person| person.host == host);
        self.hosts[host].is_running() && self.in_flight(host) == 0 && people.all(Person::is_done)
    }

    /// Too little was hit: there is more to do, and more goes wrong. False: it was enough, or there is no more.
    pub(super) fn encore(&mut self) -> bool {
        let enough = !self.chosen && self.hits.iter().sum::<u64>() >= HITS;
        if enough || self.reserve.is_empty() {
            return false;
        }
        let keep = self.reserve.len().saturating_sub(ENCORE);
        let mut more = self.reserve.split_off(keep);
        let first = more.last().map_or(0, |fault| fault.at_us);
        more.iter_mut().for_each(|fault| fault.at_us = self.now_us + 1_000 + fault.at_us - first);
        self.faults = more;
        self.arm_fault();
        for client in 0..self.people.len() {
            match &mut self.people[client].role {
                Role::Produce(producer) => producer.more(ENCORE_MESSAGES),
                Role::Transact(transactor) => transactor.more(ENCORE_TRANSACTIONS),
                Role::Manage(manager) => manager.more(ENCORE_TRANSACTIONS),
                _ => continue,
            }
            self.alarm_now(client);
        }
        true
    }

    /// A spell begins, told in the history.
    fn spell(&mut self, fault: Fault, us: u64, cure: Cure) {
        let name = format!("{}#{}", fault.kind.name(), fault.number);
        self.tell_fault(&name, fault.host, true);
        self.spells.push(Spell { host: fault.host, kind: fault.kind, name, cure, over: false, counted: false });
        self.at(self.now_us + us, Due::Heal(self.spells.len() - 1));
    }

    /// The fault is of an instant; what follows of it is seen for a while.
    fn instant(&mut self, fault: Fault) {
        self.hit(fault.kind);
        self.spell(fault, 60_000, Cure::None);
    }

    /// The streams of a broker at which both ends are there.
    fn streams(&self, host: usize) -> Vec<usize> {
        let life = self.hosts[host].starts;
        let open = |stream: &usize| {
            let one = self.net.get(*stream);
            one.host == host && one.life == life && one.accepted && !one.forgotten && !one.left && !one.closing
        };
        let busy = |stream: &usize| self.people[self.net.get(*stream).client].in_flight() > 0;
        let all: Vec<usize> = (0..self.net.count()).filter(open).collect();
        let some: Vec<usize> = all.iter().copied().filter(busy).collect();
        if some.is_empty() { all } else { some }
    }

    /// Carries a fault out. False: it finds nothing to hit now.
    fn carry_out(&mut self, fault: Fault) -> bool {
        let Fault { kind, host, dice, .. } = fault;
        let mut draw = Draw::new(dice, 1);
        match kind {
            Kind::Delay
            | Kind::Cut
            | Kind::HalfOpenClient
            | Kind::HalfOpenBroker
            | Kind::OneByte
            | Kind::HoleToBroker
            | Kind::HoleToClient
            | Kind::OldAlive => self.disturb(fault, &mut draw),
            Kind::ClockSecond => self.step_clock(fault, if draw.chance(50) { 1_000 } else { -1_000 }),
            Kind::ClockHour => self.step_clock(fault, if draw.chance(50) { 3_600_000 } else { -3_600_000 }),
            Kind::ClockDecade => {
                self.step_clock(fault, if draw.chance(50) { 315_576_000_000 } else { -315_576_000_000 })
            }
            Kind::ClockSkew => {
                self.hit(kind);
                let by_ms = draw.range(1, 40) as i64 * if draw.chance(50) { 1 } else { -1 };
                self.spell(fault, 20_000, Cure::Skew { by_ms, left: draw.range(5, 25) as u32 });
                true
            }
            Kind::ClockBackAtRestart => {
                let ended = self.end(host, End::Process(CrashMode::Kill), |_| {});
                self.hosts[host].step_wall(self.now_us, -(draw.range(1_000, 7_200_000) as i64));
                self.instant(fault);
                ended
            }
            Kind::Kill => self.end_by(fault, End::Process(CrashMode::Kill)),
            Kind::PowerLost => self.end_by(fault, End::Power(CrashMode::Lose)),
            Kind::PowerTorn512 => self.end_by(fault, End::Power(CrashMode::Torn(512))),
            Kind::PowerTorn4096 => self.end_by(fault, End::Power(CrashMode::Torn(4096))),
            Kind::PowerReordered => self.end_by(fault, End::Power(CrashMode::Torn(usize::MAX))),
            Kind::PowerInRecovery => {
                let ended = self.end_by(fault, End::Power(CrashMode::Torn(512)));
                self.power_in_recovery(host, draw.next());
                ended
            }
            Kind::Stop => {
                if self.hosts[host].life.as_ref().is_some_and(|life| life.stopping.is_some()) {
                    return false;
                }
                self.instant(fault);
                self.ask_to_stop(host);
                true
            }
            Kind::Pause => {
                self.hit(kind);
                let us = if draw.chance(15) { draw.range(3_000_000, 5_000_000) } else { draw.range(20_000, 900_000) };
                if let Some(life) = &mut self.hosts[host].life {
                    life.paused = true;
                }
                self.spell(fault, us, Cure::Continue);
                true
            }
            Kind::ReadError => self.plant(fault, Verb::Read, Effect::Error, 1),
            Kind::WriteError => self.plant(fault, Verb::Write, Effect::Error, 1),
            Kind::SyncError => self.plant(fault, Verb::Sync, Effect::Error, 1),
            Kind::RenameError => self.plant(fault, Verb::Rename, Effect::Error, 1),
            Kind::CreateError => self.plant(fault, Verb::Create, Effect::Error, 1),
            Kind::DiskBroken => self.plant(fault, Verb::Any, Effect::Error, u64::MAX),
            Kind::DiskStalled => {
                let us = draw.range(100_000, 2_500_000);
                let verb = [Verb::Write, Verb::Sync, Verb::Read, Verb::Any][draw.below(4)];
                self.plant(fault, verb, Effect::Slow(us), 1)
            }
            Kind::DiskFull => {
                self.hosts[host].with_disk(|disk| disk.set_free_bytes(Some(0)));
                self.spell(fault, draw.range(150_000, 1_200_000), Cure::Space);
                true
            }
            Kind::DiskFullAtStart => {
                self.end(host, End::Process(CrashMode::Kill), |disk| disk.set_free_bytes(Some(0)));
                self.hit(kind);
                self.spell(fault, draw.range(100_000, 500_000), Cure::Space);
                true
            }
            Kind::DiskSlow => {
                self.hit(kind);
                let factor = draw.range(3, 40);
                self.hosts[host].with_disk(|disk| disk.set_slow(factor));
                self.spell(fault, draw.range(100_000, 800_000), Cure::Quick);
                true
            }
            Kind::FlipTail | Kind::FlipBody | Kind::FlipHeader => self.flip(fault, &mut draw),
        }
    }

    fn end_by(&mut self, fault: Fault, end: End) -> bool {
        let ended = self.end(fault.host, end, |_| {});
        if ended {
            self.instant(fault);
        }
        ended
    }

    fn step_clock(&mut self, fault: Fault, by_ms: i64) -> bool {
        self.hosts[fault.host].step_wall(self.now_us, by_ms);
        self.instant(fault);
        true
    }

    /// What goes wrong on a stream.
    fn disturb(&mut self, fault: Fault, draw: &mut Draw) -> bool {
        let streams = self.streams(fault.host);
        if streams.is_empty() {
            return false;
        }
        let stream = streams[draw.below(streams.len())];
        let client = self.net.get(stream).client;
        if self.people[client].stream != Some(stream) || self.people[client].stage != Stage::Working {
            return false;
        }
        let now = self.now_us;
        self.hit(fault.kind);
        match fault.kind {
            Kind::Delay => {
                let us = draw.range(100_000, 600_000);
                self.net.slow(stream, now + us, draw.range(5_000, 150_000));
                self.spell(fault, us + 200_000, Cure::None);
            }
            Kind::Cut => {
                let [to_broker, to_client] = self.net.cut(now, stream);
                self.arm_net(to_broker, stream, Way::ToBroker);
                self.arm_net(to_client, stream, Way::ToClient);
                self.spell(fault, 30_000, Cure::None);
            }
            Kind::OneByte => {
                self.net.single(stream, draw.range(200, 1_500) as usize);
                self.spell(fault, 50_000, Cure::None);
            }
            Kind::HoleToBroker | Kind::HoleToClient => {
                let us = if draw.chance(25) { draw.range(3_000_000, 7_000_000) } else { draw.range(20_000, 800_000) };
                let way = if fault.kind == Kind::HoleToBroker { Way::ToBroker } else { Way::ToClient };
                self.net.hole(stream, way, now + us);
                self.spell(fault, us + 50_000, Cure::None);
            }
            Kind::HalfOpenClient => {
                self.net.vanish(stream, Way::ToClient, draw.chance(50));
                self.lasts(fault, stream);
                self.leave(client, stream);
                self.alarm(client);
            }
            Kind::OldAlive => {
                self.net.hole(stream, Way::ToBroker, now + draw.range(20_000, 1_500_000));
                let at = self.net.end(now, stream, Way::ToBroker);
                self.arm_net(at, stream, Way::ToBroker);
                self.net.vanish(stream, Way::ToClient, false);
                self.lasts(fault, stream);
                self.leave(client, stream);
                self.alarm(client);
            }
            _ => {
                // The broker's end: it hears that the peer is gone, the peer hears nothing.
                self.lasts(fault, stream);
                let [to_broker, _] = self.net.cut(now, stream);
                self.arm_net(to_broker, stream, Way::ToBroker);
                self.net.vanish(stream, Way::ToBroker, true);
                self.net.hear_end(stream, Way::ToBroker);
                if let Some(life) = &mut self.hosts[fault.host].life {
                    life.ready.push(stream);
                }
                self.want_turn(fault.host, 1);
            }
        }
        true
    }

    /// The fault of a stream lasts until both ends have noticed.
    fn lasts(&mut self, fault: Fault, stream: usize) {
        let name = format!("{}#{}", fault.kind.name(), fault.number);
        self.tell_fault(&name, fault.host, true);
        self.noticed.entry(stream).or_default().push(name);
    }

    /// A trouble of the disk that strikes when an operation comes that it fits.
    fn plant(&mut self, fault: Fault, verb: Verb, effect: Effect, times: u64) -> bool {
        let id = u64::from(fault.number);
        self.planted.insert(id, (fault.host, fault.kind));
        self.hosts[fault.host].with_disk(|disk| disk.plant_trouble(Trouble { id, verb, effect, times }));
        let mut draw = Draw::new(fault.dice, 2);
        let (us, cure) = match fault.kind {
            Kind::DiskBroken => (draw.range(50_000, 400_000), Cure::Replace),
            Kind::DiskStalled => (2_700_000, Cure::Spare(id)),
            _ => (1_500_000, Cure::Spare(id)),
        };
        self.spell(fault, us, cure);
        true
    }

    /// Takes in what disks have met.
    pub(super) fn look_for_struck(&mut self, host: usize) {
        let mut struck = std::mem::take(&mut self.struck);
        self.hosts[host].with_disk(|disk| disk.take_struck(&mut struck));
        for one in struck.drain(..) {
            let in_flight = self.in_flight(host) > 0;
            if one.id == Struck::NO_SPACE {
                // A disk that is full is one fault, however often it says so.
                let full = |spell: &&mut Spell| {
                    spell.host == host && spell.kind == Kind::DiskFull && !spell.over && !spell.counted
                };
                if in_flight && let Some(spell) = self.spells.iter_mut().find(full) {
                    spell.counted = true;
                    self.hit(Kind::DiskFull);
                }
                continue;
            }
            let Some((_, kind)) = self.planted.get(&one.id).copied() else { continue };
            // A disk that is broken is one fault, however much it breaks.
            if in_flight && !self.hosts[host].ill.contains(&one.id) {
                self.hit(kind);
            }
            if kind != Kind::DiskStalled {
                self.hosts[host].ill.push(one.id);
            }
            if let Some((name, offset, length)) = one.unread
                && !self.hosts[host].unread.insert((name, offset, length))
            {
                let mut bodies = Vec::new();
                self.hosts[host].with_disk(|disk| damage::bodies_in(disk, name, offset, length, &mut bodies));
                self.damaged(&bodies);
            }
        }
        self.struck = struck;
    }

    /// These may be missing from here on.
    fn damaged(&mut self, messages: &[MessageId]) {
        for message in messages {
            self.books.put(self.book, &Event::Damaged { message: *message });
        }
    }

    /// Whether a broker may end with 70, or be refused, for its disk.
    pub(super) fn disk_is_ill(&self, host: usize) -> bool {
        let full = self.spells.iter().any(|spell| {
            spell.host == host && !spell.over && matches!(spell.kind, Kind::DiskFull | Kind::DiskFullAtStart)
        });
        full || !self.hosts[host].ill.is_empty()
    }

    /// The broker runs: what was wrong with its disk is over, unless it goes on being wrong.
    pub(super) fn healthy(&mut self, host: usize) {
        let mut ill = std::mem::take(&mut self.hosts[host].ill);
        ill.retain(|id| {
            let broken = self.planted.get(id).is_some_and(|(_, kind)| *kind == Kind::DiskBroken);
            broken && !self.replaced.contains(id)
        });
        self.hosts[host].ill = ill;
    }

    fn flip(&mut self, fault: Fault, draw: &mut Draw) -> bool {
        let host = fault.host;
        let Some(life) = &self.hosts[host].life else { return false };
        let told = {
            use packhorse_store::Store;
            life.node.shard(packhorse_model::ShardId(0)).store().status().durable_block
        };
        // Only where there is something to hit.
        let blocks = damage::blocks(&life.sim.disk());
        if fault.kind == Kind::FlipTail && blocks.last().is_none_or(|last| last.number <= told) {
            return false;
        }
        let mut flipped: Option<Vec<MessageId>> = None;
        let mut in_header = None;
        let ended = self.end(host, End::Process(CrashMode::Kill), |disk| match fault.kind {
            Kind::FlipTail => flipped = damage::flip_tail(disk, told, draw.chance(30), draw),
            Kind::FlipBody => flipped = damage::flip_body(disk, draw).map(|message| vec![message]),
            _ => in_header = damage::flip_header(disk, told, draw),
        });
        if let Some(flipped) = &in_header {
            self.note(|_| format!("a bit flips in a header: {flipped:?}"));
        }
        let hit = flipped.is_some();
        self.damaged(&flipped.unwrap_or_default());
        match fault.kind {
            // Counted when the start is refused.
            Kind::FlipHeader => {
                self.hosts[host].flipped.extend(in_header);
                self.spell(fault, 60_000, Cure::None);
            }
            _ if hit => self.instant(fault),
            _ => {}
        }
        ended
    }

    /// A process that stood still goes on.
    pub(super) fn wake(&mut self, host: usize) {
        self.hosts[host].wake_up(self.now_us);
        let unwritten = self.hosts[host].life.as_mut().map(|life| std::mem::take(&mut life.unwritten));
        for stream in unwritten.into_iter().flatten() {
            let shard = packhorse_model::ShardId(self.net.get(stream).shard);
            self.write(host, shard, stream);
        }
        self.want_turn(host, 1);
        self.advance(host);
    }

    /// The end of a spell.
    pub(super) fn heal(&mut self, spell: usize) {
        if spell >= STOPPED {
            return self.all_stopped(spell - STOPPED);
        }
        let Spell { host, ref name, ref cure, .. } = self.spells[spell];
        let (name, cure) = (name.clone(), cure.clone());
        match cure {
            Cure::None => {}
            Cure::Continue => self.wake(host),
            Cure::Space => {
                self.hosts[host].with_disk(|disk| disk.set_free_bytes(None));
                self.advance(host);
            }
            Cure::Quick => self.hosts[host].with_disk(|disk| disk.set_slow(1)),
            Cure::Skew { by_ms, left } => {
                self.hosts[host].step_wall(self.now_us, by_ms);
                if left > 0 {
                    self.spells[spell].cure = Cure::Skew { by_ms, left: left - 1 };
                    self.at(self.now_us + 20_000, Due::Heal(spell));
                    return;
                }
            }
            Cure::Replace => {
                self.hosts[host].with_disk(|disk| disk.repair());
                // It is over with the next start that goes well: the process may have yet to hear of what failed.
                let ours = self.planted.iter().filter(|(_, (whose, kind))| (*whose, *kind) == (host, Kind::DiskBroken));
                self.replaced.extend(ours.map(|(id, _)| *id));
            }
            // It may have struck late, for another one stood before it: it is over with what it holds up.
            Cure::Spare(id) => {
                let until = self.hosts[host].with_disk(|disk| disk.spare(id));
                if let Some(until) = until.filter(|until| *until > self.now_us) {
                    self.at(until, Due::Heal(spell));
                    return;
                }
            }
        }
        self.spells[spell].over = true;
        self.tell_fault(&name, host, false);
    }
}
