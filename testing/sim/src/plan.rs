//! What a seed stands for: brokers, queues, clients and their habits, and the faults with their times. Everything here is drawn before
//! anything happens, each part with dice of its own, so that leaving out a fault changes nothing else of the plan.

use crate::client::{
    Board, Browser, Consumer, Helper, Hostile, In, Manager, Manner, Out, Producer, Queue, Role, Transactor, Use, Work,
};
use crate::draw::Draw;
use crate::fault::Kind;
use crate::host::Setup;
use crate::message::Habits;
use crate::operator::{self, Act, Deed};

/// How a world is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Everything follows from it.
    pub seed: u64,
    /// Shards of each broker; `None`: the seed says.
    pub shards: Option<u16>,
    /// The faults of the plan that happen, by number; `None`: all.
    pub faults: Option<Vec<u32>>,
    /// Operators do what the seed says; otherwise nothing.
    pub operators: bool,
    /// Keeps what brokers log and why connections end, for whoever looks for a cause. Changes nothing else.
    pub notes: bool,
}

impl Settings {
    /// The usual world of a seed.
    pub fn new(seed: u64) -> Settings {
        Settings { seed, shards: None, faults: None, operators: true, notes: false }
    }
}

/// One fault to come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) number: u32,
    pub(crate) at_us: u64,
    pub(crate) kind: Kind,
    pub(crate) host: usize,
    /// Its own dice.
    pub(crate) dice: u64,
}

/// A client to come.
pub(crate) struct Cast {
    pub(crate) host: usize,
    pub(crate) role: Role,
    pub(crate) connects_at: u64,
}

/// See the module.
pub(crate) struct Plan {
    pub(crate) hosts: Vec<Setup>,
    pub(crate) cast: Vec<Cast>,
    /// By descending time: the next is the last.
    pub(crate) faults: Vec<Fault>,
    /// More of them, for a world in which too many of the others found nothing to hit. Their times count from when they are called, by
    /// descending time.
    pub(crate) reserve: Vec<Fault>,
    /// By descending time.
    pub(crate) acts: Vec<Act>,
}

/// Faults that hit work in flight, in a world that is worth its name.
pub(crate) const HITS: u64 = 20;

/// All faults that a seed has, called or not, by number.
pub(crate) fn faults_of(seed: u64) -> Vec<Fault> {
    let Plan { faults, reserve, .. } = Plan::draw(&Settings::new(seed));
    let mut all = [faults, reserve].concat();
    all.sort_unstable_by_key(|fault| fault.number);
    all
}

/// Messages of a world, at least.
const MESSAGES: u64 = 2_100;

/// Faults in reserve.
const RESERVE: u32 = 120;

/// Between two of them, about.
pub(crate) const RESERVE_EVERY_US: u64 = 25_000;

impl Plan {
    pub(crate) fn draw(settings: &Settings) -> Plan {
        let mut draw = Draw::new(settings.seed, 2);
        let count = [1, 1, 1, 2, 2, 3, 4][draw.below(7)];
        let shards = settings.shards.unwrap_or(1 + (settings.seed % 2) as u16);
        let mut hosts: Vec<Setup> = (0..count).map(|_| Setup::draw(&mut draw, shards)).collect();
        // In some worlds few attempts, so that messages come to their end that way.
        if settings.seed % 4 == 2 {
            hosts.iter_mut().for_each(|setup| setup.delivery_limit = 2);
        }
        let slow_mail = shards > 1 && Draw::new(settings.seed, 8).chance(50);
        hosts.iter_mut().for_each(|setup| setup.slow_mail = slow_mail);
        // In some worlds transactions reach the limit of what they may hold in memory.
        if Draw::new(settings.seed, 10).chance(25) {
            hosts.iter_mut().for_each(|setup| setup.transaction_bytes = u64::from(setup.shards) * (48 << 10));
        }
        let work_us = draw.range(1_500_000, 4_000_000);
        let acts = if settings.operators { operator::acts(settings.seed, &hosts, work_us) } else { Vec::new() };
        // What a queue remembers goes with it, or after a day: what is sent again to one that was deleted, or years later, is stored again.
        let deletes = acts.iter().any(|act| matches!(act.deed, Deed::Delete | Deed::Move | Deed::DeleteSource(_)));
        let lasting = !has_years(settings.seed) && !deletes;
        let mut cast = Vec::new();
        for (host, setup) in hosts.iter().enumerate() {
            people(settings.seed, host, setup, (MESSAGES / count as u64, lasting), work_us, &mut cast);
        }
        for (host, setup) in hosts.iter().enumerate() {
            transactors(settings.seed, host, setup, work_us, &mut cast);
        }
        let (faults, reserve) = faults(settings, count, work_us);
        Plan { hosts, cast, faults, reserve, acts }
    }
}

/// The clients of a broker: so many messages for queues that are never deleted, if `lasting`.
fn people(seed: u64, host: usize, setup: &Setup, (messages, lasting): (u64, bool), work_us: u64, cast: &mut Vec<Cast>) {
    let mut draw = Draw::new(seed, 20 + host as u64);
    let queue = |draw: &mut Draw| Queue::new(host, &setup.queues[draw.below(setup.queues.len())]);
    let dice = |cast: &[Cast]| Draw::new(seed, 1_000 + cast.len() as u64);
    // Now and then tens of clients at one broker, each with a few messages.
    let crowd = draw.chance(20);
    let producers = if crowd { draw.range(8, 20) } else { draw.range(2, 5).min(messages / 200).max(1) };

    for _ in 0..producers {
        let links = draw.range(1, 2);
        let burst = [1, 4, 16, 64][draw.below(4)];
        let each = messages / producers / links + 1;
        let beat_us = (work_us * burst / each / 2).max(300);
        let outs = (0..links).map(|_| {
            let at = draw.below(setup.queues.len());

            let habits = Habits {
                volatile: [0, 0, 15, 100][draw.below(4)],
                priorities: [0, 0, 20][draw.below(3)],
                settled: [0, 0, 0, 10][draw.below(4)],
                huge: if draw.chance(40) { draw.range(1, 2) as u32 } else { 0 },
            };
            let window = [1, 8, 60, 400, 2_000][draw.below(5)];
            crate::client::Out::new(Queue::new(host, &setup.queues[at]), habits, window, each)
        });
        let outs: Vec<_> = outs.collect();
        let mut known = Draw::new(seed, 5_000 + cast.len() as u64);
        let numbered = known.chance(35);
        let identified = !numbered && lasting && known.chance(45);
        let name = |at: usize| {
            let mut name = [0; 16];
            name[..8].copy_from_slice(&(cast.len() as u64).to_be_bytes());
            name[8..].copy_from_slice(&(at as u64).to_be_bytes());
            name
        };
        let outs = outs.into_iter().enumerate().map(|(at, out)| match (numbered, identified) {
            (true, _) => out.numbered(name(at)),
            (false, true) => out.identified(),
            (false, false) => out,
        });
        let outs = outs.collect();
        let every = draw.range(400_000, 3_000_000);
        let role = Role::Produce(Producer::new(outs, dice(cast), burst, beat_us, every));
        cast.push(Cast { host, role, connects_at: draw.range(0, 40_000) });
    }
    let consumers = if crowd { draw.range(8, 20) } else { draw.range(2, 5) };
    for number in 0..consumers {
        let links = draw.range(1, 2);
        let ins = (0..links).map(|link| {
            let manner = crate::client::Manner {
                careful: draw.chance(60),
                presettled: draw.chance(4),
                credit: draw.range(2, 120) as u32,
                hold: draw.range(2, 40) as usize,
                hold_us: [3_000, 20_000, 90_000][draw.below(3)],
                accepts: draw.range(70, 100),
            };
            // Each queue has somebody.
            let queue = match (number * 2 + link) as usize {
                at if at < setup.queues.len() => Queue::new(host, &setup.queues[at]),
                _ => queue(&mut draw),
            };
            crate::client::In::new(queue, Use::Consume, manner)
        });
        let ins = ins.collect();
        let every = draw.range(60_000, 800_000);
        let role = Role::Consume(Consumer::new(ins, Use::Consume, dice(cast), every));
        cast.push(Cast { host, role, connects_at: draw.range(0, 60_000) });
    }
    if draw.chance(60) {
        let manner = crate::client::Manner {
            careful: draw.chance(50),
            presettled: false,
            credit: 50,
            hold: 4,
            hold_us: 10_000,
            accepts: 100,
        };
        let ins = vec![crate::client::In::new(Queue::new(host, "DLQ"), Use::DeadLetters, manner)];
        let role = Role::Consume(Consumer::new(ins, Use::DeadLetters, dice(cast), 400_000));
        cast.push(Cast { host, role, connects_at: draw.range(10_000, 90_000) });
    }
    if operator::has_browsers(seed) {
        for _ in 0..draw.range(0, 2) {
            let role = Role::Browse(Browser::new(queue(&mut draw), dice(cast)));
            cast.push(Cast { host, role, connects_at: draw.range(20_000, 400_000) });
        }
    }
    for _ in 0..draw.range(0, 2) {
        let role = Role::Annoy(Hostile::new(queue(&mut draw), dice(cast)));
        cast.push(Cast { host, role, connects_at: draw.range(20_000, 400_000) });
    }
}

/// The clients of a broker that have transactions, local ones and such of two phases.
fn transactors(seed: u64, host: usize, setup: &Setup, work_us: u64, cast: &mut Vec<Cast>) {
    let mut draw = Draw::new(seed, 40 + host as u64);
    for number in 0..draw.range(2, 4) {
        let work = work(&mut draw, host, setup);
        let transactions = draw.range(6, 40);
        // About six steps each.
        let beat_us = work_us / transactions / 8;
        let dice = Draw::new(seed, 3_000 + cast.len() as u64);
        let board = (number == 0 && draw.chance(70)).then(Board::default);
        let role = match number {
            0 => Role::Manage(Box::new(Manager::new(work, host, dice, transactions, beat_us, board.clone()))),
            _ => Role::Transact(Box::new(Transactor::new(work, host, dice, transactions, beat_us))),
        };
        cast.push(Cast { host, role, connects_at: draw.range(0, 60_000) });
        if let Some(board) = board {
            let work = self::work(&mut draw, host, setup);
            let dice = Draw::new(seed, 3_000 + cast.len() as u64);
            let role = Role::Help(Box::new(Helper::new(work, host, dice, board, beat_us)));
            cast.push(Cast { host, role, connects_at: draw.range(0, 60_000) });
        }
    }
}

/// The links of a client that works in transactions.
fn work(draw: &mut Draw, host: usize, setup: &Setup) -> Work {
    let queue = |draw: &mut Draw| Queue::new(host, &setup.queues[draw.below(setup.queues.len())]);
    let outs = (0..draw.range(1, 3)).map(|_| {
        let habits = Habits {
            volatile: [0, 0, 20][draw.below(3)],
            priorities: [0, 0, 20][draw.below(3)],
            settled: [0, 0, 10][draw.below(3)],
            huge: u32::from(draw.chance(20)),
        };
        Out::new(queue(draw), habits, [8, 100][draw.below(2)], 0)
    });
    let outs: Vec<Out> = outs.collect();
    let ins = (0..draw.range(0, 2)).map(|_| {
        let (credit, hold) = (draw.range(2, 20) as u32, draw.range(1, 8) as usize);
        let manner = Manner { careful: false, presettled: false, credit, hold, hold_us: 5_000, accepts: 85 };
        In::new(queue(draw), Use::Consume, manner)
    });
    Work::new(outs, ins.collect())
}

/// Whether clocks may be moved by years in this world: not in half of them, with one shard and with two, so that what a day forgets lasts there.
fn has_years(seed: u64) -> bool {
    (seed / 2).is_multiple_of(2)
}

fn faults(settings: &Settings, hosts: usize, work_us: u64) -> (Vec<Fault>, Vec<Fault>) {
    let mut draw = Draw::new(settings.seed, 3);
    let weight = |kind: Kind| if kind == Kind::ClockDecade && !has_years(settings.seed) { 0 } else { kind.weight() };
    let count = draw.range(38, 48) as u32;
    let mut faults: Vec<Fault> = (0..count).map(|number| fault(&mut draw, number, hosts, work_us, weight)).collect();
    let mut draw = Draw::new(settings.seed, 5);
    // Only such as hit at once: the others would find nothing once more.
    let weight = |kind: Kind| if kind.waits() { 0 } else { weight(kind) };
    let mut reserve: Vec<Fault> = (0..RESERVE)
        .map(|at| {
            let fault = fault(&mut draw, 1_000 + at, hosts, work_us, weight);
            Fault { at_us: u64::from(at) * RESERVE_EVERY_US, ..fault }
        })
        .collect();
    if let Some(kept) = &settings.faults {
        faults.retain(|fault| kept.contains(&fault.number));
        reserve.retain(|fault| kept.contains(&fault.number));
    }
    faults.sort_by_key(|fault| std::cmp::Reverse((fault.at_us, fault.number)));
    reserve.reverse();
    (faults, reserve)
}

fn fault(draw: &mut Draw, number: u32, hosts: usize, work_us: u64, weight: impl Fn(Kind) -> u64) -> Fault {
    let total: u64 = Kind::ALL.iter().map(|kind| weight(*kind)).sum();
    let mut at = draw.range(0, total - 1);
    let kind = Kind::ALL.into_iter().find(|kind| {
        let here = at < weight(*kind);
        at = at.saturating_sub(weight(*kind));
        here
    });
    Fault {
        number,
        at_us: draw.range(60_000, work_us),
        kind: kind.expect("the weights add up"),
        host: draw.below(hosts),
        dice: draw.next(),
    }
}
