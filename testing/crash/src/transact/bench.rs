//! What tests of branches share: a broker that is killed and started again, a ledger of what managers heard, and the usual branch.

use super::ledger::Ledger;
use super::manager::{Answer, Manager};
use crate::broker::{Broker, Ended, serve};
use packhorse_client_core::Verdict;
use packhorse_client_core::transaction::flags;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The queue of these tests.
pub const QUEUE: &str = "orders";
/// The usual branch.
pub const X: &str = "X";

/// See the module.
pub struct Bench {
    dir: PathBuf,
    flags: Vec<String>,
    /// More of its environment: a fault on purpose.
    environment: Vec<(String, String)>,
    broker: Option<Broker>,
    /// What its managers heard.
    pub ledger: Ledger,
}

impl Bench {
    /// In a folder of its own, with more flags for the broker.
    pub fn new(dir: &Path, flags: &[&str]) -> Bench {
        Bench::planted(dir, flags, None)
    }

    /// The same with a fault planted in the broker, which must be one of feature `planted`.
    pub fn planted(dir: &Path, flags: &[&str], fault: Option<&str>) -> Bench {
        let dir = dir.to_owned();
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let environment = fault.map(|fault| ("PACKHORSE_PLANTED".to_owned(), fault.to_owned())).into_iter().collect();
        let mut bench = Bench { dir, flags, environment, broker: None, ledger: Ledger::default() };
        bench.start();
        bench
    }

    /// Where it has its files.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Starts the broker.
    pub fn start(&mut self) {
        self.start_as(&[]);
    }

    /// Starts the broker with failpoints armed as in `PACKHORSE_FAILPOINTS`; one that runs is killed before.
    pub fn arm(&mut self, armed: &str) {
        if self.broker.is_some() {
            self.stop();
        }
        self.start_as(&[("PACKHORSE_FAILPOINTS", armed)]);
    }

    fn start_as(&mut self, more: &[(&str, &str)]) {
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        let mut command = serve(&self.dir, &flags);
        command.envs(more.iter().copied()).envs(self.environment.iter().map(|(name, value)| (name, value)));
        let broker = Broker::from_command(&self.dir, command);
        self.broker = Some(broker.unwrap_or_else(|ended| panic!("not ready: exit {:?}\n{}", ended.code, ended.log)));
    }

    /// The broker.
    pub fn broker(&self) -> &Broker {
        self.broker.as_ref().expect("it runs")
    }

    /// kill -9.
    pub fn stop(&mut self) {
        self.broker.take().expect("it runs").kill();
    }

    /// kill -9, and a start.
    pub fn kill(&mut self) {
        self.stop();
        self.start();
    }

    /// Waits for the end that the broker comes to by itself: a failpoint killed it.
    pub fn killed(&mut self) {
        let Ended { code, log } = self.broker.take().expect("it ran").end();
        assert_eq!(code, None, "a signal ends it: {log}");
    }

    /// A manager that has just connected; what is in doubt must be what this test's managers heard.
    pub fn manager(&self) -> Manager {
        let mut manager = self.client("manager");
        let recovered = manager.recover().expect("the broker lives");
        assert_eq!(self.ledger.judge(&recovered), Vec::<String>::new());
        manager
    }

    /// A client with a link to the coordinator.
    pub fn client(&self, name: &str) -> Manager {
        Manager::open(self.broker().amqp(), name).unwrap_or_else(|e| panic!("{e:?}\n{}", self.broker().log_tail()))
    }

    /// Nothing is in doubt.
    pub fn nothing_in_doubt(&self) {
        assert!(self.client("asks").recover().unwrap().is_empty());
    }

    /// `ready`, `prepared_in`, `prepared_out`, `depth`.
    pub fn counts(&self) -> [u64; 4] {
        let queue = self.broker().queue(QUEUE);
        ["ready", "prepared_in", "prepared_out", "depth"].map(|what| queue[what].as_u64().unwrap_or(0))
    }

    /// Asks to prepare a branch, and writes down what is said. The code.
    pub fn prepare(&mut self, manager: &mut Manager, branch: &str) -> i32 {
        self.ledger.prepare(manager, branch).unwrap()
    }

    /// The same of a decision.
    pub fn decide(&mut self, manager: &mut Manager, branch: &str, commit: bool) -> i32 {
        self.ledger.decide(manager, branch, commit).unwrap()
    }

    /// An operator's request about X.
    pub fn operator(&self, act: &str) -> (u16, Value) {
        let body = json!({ "who": "ann", "reason": "the manager is gone" }).to_string();
        self.broker().request("POST", &format!("/api/v1/transactions/1:58:62/{act}"), &body)
    }
}

/// Puts numbered messages into the queue.
pub fn fill(manager: &mut Manager, numbers: std::ops::Range<u64>) {
    for number in numbers {
        assert_eq!(manager.send(None, QUEUE, number).unwrap(), Answer::Accepted);
    }
}

/// The queue holds 0 to 3; branch X has acknowledged 0 and 1 and added 10 and 11, and its work has ended.
pub fn worked(manager: &mut Manager) {
    fill(manager, 0..4);
    let txn = manager.begin(X).unwrap();
    let r = manager.receiver(QUEUE, 2).unwrap();
    for (got, add) in manager.receive(r, 2).unwrap().iter().zip([10, 11]) {
        manager.accept(Some(&txn), got).unwrap();
        assert_eq!(manager.send(Some(&txn), QUEUE, add).unwrap(), Answer::Staged);
    }
    assert_eq!(manager.end(X, flags::SUCCESS).unwrap(), 0);
}

/// In a transaction, of the next four messages the first is rejected, the second given back as failed, the third released and the
/// fourth accepted.
pub fn settled(manager: &mut Manager, txn: &[u8]) {
    let verdicts = [
        Verdict::Reject { condition: "amqp:decode-error", description: "no such customer" },
        Verdict::Modify { failed: true, undeliverable_here: false },
        Verdict::Release,
        Verdict::Accept,
    ];
    let r = manager.receiver(QUEUE, 4).unwrap();
    for (got, verdict) in manager.receive(r, 4).unwrap().iter().zip(verdicts) {
        manager.settle(Some(txn), got, verdict).unwrap();
    }
}

/// And it is prepared.
pub fn prepared(bench: &mut Bench) -> Manager {
    let mut manager = bench.client("application");
    worked(&mut manager);
    assert_eq!(bench.prepare(&mut manager, X), 0);
    manager
}
