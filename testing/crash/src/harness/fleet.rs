//! The client processes of a run: started, told what to do, stopped and continued, watched.

use super::clock::pause;
use super::flow::{Board, Figures, Stage};
use super::orders::Order;
use super::plan::{CLIENTS, CONSUMERS, PRODUCERS, Plan, TRANSACTORS};
use super::process::{Setup, tail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The numbers of consuming clients, and of those that work in transactions.
const CONSUMING: Range<usize> = PRODUCERS..PRODUCERS + CONSUMERS;
const TRANSACTING: Range<usize> = CONSUMING.end..CLIENTS;
/// The last of these manage branches.
const MANAGING: Range<usize> = CONSUMING.end + TRANSACTORS..CLIENTS;

/// One client process.
#[derive(Debug)]
struct One {
    name: String,
    child: Child,
    log: PathBuf,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Fleet {
    clients: Vec<One>,
    board: Board,
}

/// Sums over clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    /// Confirmed sends.
    pub(super) confirmed: u64,
    /// Sends without an answer.
    pub(super) unconfirmed: u64,
    /// Confirmed acknowledgements.
    pub(super) acknowledged: u64,
    /// Deliveries without a confirmed end.
    pub(super) unacknowledged: u64,
    /// Branches in doubt.
    pub(super) in_doubt: u64,
}

impl Fleet {
    /// Starts all of them, each connected to its own address; their histories go to `<dir>/history`.
    pub(super) fn start(plan: &Plan, setup: &Setup, to: impl Fn(usize) -> SocketAddr) -> Result<Fleet, String> {
        let flow = setup.flow();
        let history = setup.dir.join("history");
        let board = Board::make(&flow, CLIENTS).map_err(|e| format!("{}: {e}", flow.display()))?;
        let mut fleet = Fleet { clients: Vec::new(), board };
        for number in 0..CLIENTS {
            let (role, nth) = role(number);
            let name = format!("{role}-{number}");
            let log = setup.dir.join(format!("{name}.log"));
            let stderr = File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
            let mut command = plan.client(role);
            command.args(["--number", &number.to_string(), "--to", &to(number).to_string()]);
            command.args(["--run", &plan.run.to_string(), "--seed", &plan.client_seed(number).to_string()]);
            command.arg("--history").arg(history.join(format!("{name}.jsonl"))).arg("--flow").arg(&flow);
            let transacts = TRANSACTING.contains(&number);
            let queues = if transacts { plan.queues_of_transactions(nth) } else { plan.queues_of(nth) };
            command.args(["--queue", &queues.join(",")]);
            if let Some(once) = plan.once.as_ref().filter(|_| nth == 0 && !transacts) {
                command.args(["--once", once]);
            }
            fleet.add(name, log, command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(stderr))?;
        }
        Ok(fleet)
    }

    fn add(&mut self, name: String, log: PathBuf, command: &mut Command) -> Result<(), String> {
        let child = command.spawn().map_err(|e| format!("cannot run a client: {e}"))?;
        self.clients.push(One { name, child, log });
        Ok(())
    }

    fn figures(&self) -> Result<Vec<Figures>, String> {
        self.board.read().map_err(|e| format!("cannot read the clients' figures: {e}"))
    }

    /// What the clients show. Err: one of them has ended.
    pub(super) fn sums(&mut self) -> Result<Sums, String> {
        self.all_alive(0..CLIENTS)?;
        let figures = self.figures()?;
        let (producers, consumers) = (&figures[..PRODUCERS], &figures[CONSUMING]);
        Ok(Sums {
            confirmed: producers.iter().map(|one| one.done).sum(),
            unconfirmed: producers.iter().map(|one| one.open).sum(),
            acknowledged: consumers.iter().map(|one| one.done).sum(),
            unacknowledged: consumers.iter().map(|one| one.open).sum(),
            in_doubt: figures[MANAGING].iter().map(|one| one.open).sum(),
        })
    }

    fn all_alive(&mut self, which: Range<usize>) -> Result<(), String> {
        for one in &mut self.clients[which] {
            if let Ok(Some(status)) = one.child.try_wait() {
                return Err(format!("{} ended ({status}): {}", one.name, tail(&one.log)));
            }
        }
        Ok(())
    }

    /// How many clients there are.
    pub(super) fn count(&self) -> usize {
        self.clients.len()
    }

    /// The client's name in histories.
    pub(super) fn name(&self, which: usize) -> &str {
        &self.clients[which].name
    }

    /// Sends a signal to one.
    pub(super) fn signal(&self, which: usize, signal: Signal) {
        let _ = kill_process(Pid::from_child(&self.clients[which].child), signal);
    }

    fn tell(&mut self, which: Range<usize>, order: Order) -> Result<(), String> {
        for one in &mut self.clients[which] {
            let stdin = one.child.stdin.as_mut().ok_or("a client's input is not piped")?;
            let written = stdin.write_all(format!("{}\n", order.word()).as_bytes()).and_then(|()| stdin.flush());
            written.map_err(|e| format!("{} takes no orders: {e}: {}", one.name, tail(&one.log)))?;
        }
        Ok(())
    }

    /// Producers come to an end: all that was sent has an answer.
    pub(super) fn end_producers(&mut self, patience: Duration) -> Result<(), String> {
        self.tell(0..PRODUCERS, Order::End)?;
        self.wait_ended(0..PRODUCERS, patience)
    }

    /// Clients that work in transactions come to an end: all transactions are over.
    pub(super) fn end_transactions(&mut self, patience: Duration) -> Result<(), String> {
        self.tell(TRANSACTING, Order::End)?;
        self.wait_ended(TRANSACTING, patience)
    }

    /// Consumers give up their links and wait.
    pub(super) fn hold_consumers(&mut self, patience: Duration) -> Result<(), String> {
        self.tell(CONSUMING, Order::Hold)?;
        let until = Instant::now() + patience;
        loop {
            self.all_alive(CONSUMING)?;
            let figures = self.figures()?;
            let late = figures[CONSUMING].iter().position(|one| one.stage != Stage::Held);
            let Some(late) = late else { return Ok(()) };
            if Instant::now() > until {
                let name = &self.clients[PRODUCERS + late].name;
                return Err(format!("{name} has not given up its links after {} s", patience.as_secs()));
            }
            pause(Duration::from_millis(2));
        }
    }

    /// Consumers take and accept everything from now on.
    pub(super) fn let_finish(&mut self) -> Result<(), String> {
        self.tell(CONSUMING, Order::Finish)
    }

    /// Consumers come to an end in order.
    pub(super) fn end_consumers(&mut self, patience: Duration) -> Result<(), String> {
        self.tell(CONSUMING, Order::End)?;
        self.wait_ended(CONSUMING, patience)
    }

    /// Waits for all of them, so that each is heard which has found something.
    fn wait_ended(&mut self, which: Range<usize>, patience: Duration) -> Result<(), String> {
        let until = Instant::now() + patience;
        let ended = self.clients[which].iter_mut().map(|one| one.wait_ended(until));
        let found: Vec<String> = ended.filter_map(Result::err).collect();
        if found.is_empty() { Ok(()) } else { Err(found.join("; ")) }
    }
}

impl One {
    fn wait_ended(&mut self, until: Instant) -> Result<(), String> {
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(format!("{} ended ({status}): {}", self.name, tail(&self.log))),
                Ok(None) if Instant::now() < until => pause(Duration::from_millis(2)),
                Ok(None) => return Err(format!("{} does not end", self.name)),
                Err(e) => return Err(format!("{}: {e}", self.name)),
            }
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for one in &mut self.clients {
            let _ = one.child.kill();
            let _ = one.child.wait();
        }
    }
}

/// What the client of this number does, and which one of these it is.
fn role(number: usize) -> (&'static str, usize) {
    if number < PRODUCERS {
        ("producer", number)
    } else if CONSUMING.contains(&number) {
        ("consumer", number - CONSUMING.start)
    } else {
        let nth = number - TRANSACTING.start;
        (if MANAGING.contains(&number) { "manager" } else { "transactor" }, nth)
    }
}

/// All files of histories in a directory, by name.
pub(super) fn histories(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let mut files: Vec<PathBuf> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
    files.sort();
    Ok(files)
}
