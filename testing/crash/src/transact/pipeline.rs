//! FS-46: a message is taken from one queue and sent to another, in a branch whose outcome an external log decides. The manager dies after
//! each prepare, before or after it has written its decision down; the next one does what the log says.

use super::bench::Bench;
use super::figures::Figures;
use super::manager::{Answer, Manager};
use crate::random::Random;
use crate::wire::Broken;
use packhorse_client_core::transaction::flags;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

const IN: &str = "pipeline-in";
const OUT: &str = "pipeline-out";
/// A message may be rolled back any number of times; each start begins a segment.
const SETTINGS: [&str; 4] = ["--set", "queues.delivery_limit=100000", "--set", "data.segment_bytes=1048576"];
/// One death in so many takes the broker too.
const BROKER: usize = 6;
/// And in so many the manager has decided nothing.
const UNDECIDED: usize = 5;

/// The log of decisions: a file, which is all that one manager leaves to the next.
struct Log(PathBuf);

impl Log {
    fn put(&self, branch: &str, number: u64, commit: bool) -> Result<(), String> {
        let wrong = |e: std::io::Error| format!("{}: {e}", self.0.display());
        let mut file = File::options().create(true).append(true).open(&self.0).map_err(wrong)?;
        writeln!(file, "{branch} {number} {commit}").map_err(wrong)?;
        file.sync_data().map_err(wrong)
    }

    /// By branch: the message, and whether it is to be committed.
    fn read(&self) -> Result<BTreeMap<String, (u64, bool)>, String> {
        let text = match fs::read_to_string(&self.0) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            read => read.map_err(|e| format!("{}: {e}", self.0.display()))?,
        };
        let line = |line: &str| {
            let mut words = line.split(' ');
            let branch = words.next()?.to_owned();
            Some((branch, (words.next()?.parse().ok()?, words.next()?.parse().ok()?)))
        };
        text.lines().map(|text| line(text).ok_or_else(|| format!("the log has the line {text:?}"))).collect()
    }
}

/// A manager dies so many times, on a broker in `dir`, which is empty.
pub fn run(dir: &Path, deaths: u64, seed: u64) -> Figures {
    let mut figures = Figures::new(seed);
    if let Err(why) = work(dir, deaths, &mut figures) {
        figures.found.push(why);
    }
    figures
}

fn told(broken: Broken) -> String {
    format!("{broken:?}")
}

fn work(dir: &Path, deaths: u64, figures: &mut Figures) -> Result<(), String> {
    let (log, mut random) = (Log(dir.join("decisions.log")), Random::new(figures.seed));
    let mut bench = Bench::new(dir, &SETTINGS);
    let mut feeder = bench.client("feeder");
    for number in 0..deaths {
        let answer = feeder.send(None, IN, number).map_err(told)?;
        if answer != Answer::Accepted {
            return Err(format!("message {number}: {answer:?}"));
        }
    }
    drop(feeder);
    for death in 0..deaths {
        let mut manager = bench.client("manager");
        decide_as_logged(&mut bench, &mut manager, &log, figures)?;
        let branch = format!("pipeline-{death}");
        let number = one(&mut bench, &mut manager, &branch)?;
        if random.below(UNDECIDED) > 0 {
            log.put(&branch, number, random.below(5) < 3)?;
        }
        figures.fault("deaths of the manager");
        drop(manager);
        if random.below(BROKER) == 0 {
            figures.fault("of these with the broker");
            bench.kill();
        }
    }
    let mut manager = bench.client("manager");
    decide_as_logged(&mut bench, &mut manager, &log, figures)?;
    drop(manager);
    bench.nothing_in_doubt();
    let committed: Vec<u64> =
        log.read()?.into_values().filter(|(_, commit)| *commit).map(|(number, _)| number).collect();
    judge(&bench, deaths, committed, figures)
}

/// Takes a message and sends it on, in a branch that is prepared then. Its number.
fn one(bench: &mut Bench, manager: &mut Manager, branch: &str) -> Result<u64, String> {
    let txn = manager.begin(branch).map_err(told)?;
    let link = manager.receiver(IN, 1).map_err(told)?;
    let got = manager.receive(link, 1).map_err(told)?[0];
    manager.accept(Some(&txn), &got).map_err(told)?;
    let sent = manager.send(Some(&txn), OUT, got.number).map_err(told)?;
    let ended = manager.end(branch, flags::SUCCESS).map_err(told)?;
    let prepared = bench.ledger.prepare(manager, branch).map_err(told)?;
    if (&sent, ended, prepared) != (&Answer::Staged, 0, 0) {
        return Err(format!("{branch}: sent {sent:?}, end {ended}, prepare {prepared}"));
    }
    Ok(got.number)
}

/// What a manager does first.
fn decide_as_logged(bench: &mut Bench, manager: &mut Manager, log: &Log, figures: &mut Figures) -> Result<(), String> {
    let listed = manager.recover().map_err(told)?;
    let wrong = bench.ledger.judge(&listed);
    if !wrong.is_empty() {
        return Err(wrong.join("; "));
    }
    let log = log.read()?;
    for branch in listed {
        let commit = log.get(&branch).is_some_and(|(_, commit)| *commit);
        let code = bench.ledger.decide(manager, &branch, commit).map_err(told)?;
        if code != 0 {
            return Err(format!("{branch}, commit {commit}: {code}"));
        }
        figures.count(if commit { "committed" } else { "rolled back" }, 1);
    }
    Ok(())
}

fn judge(bench: &Bench, deaths: u64, mut committed: Vec<u64>, figures: &mut Figures) -> Result<(), String> {
    committed.sort_unstable();
    let mut taker = bench.client("taker");
    let mut take = |queue: &str| -> Result<Vec<u64>, String> {
        Ok(taker.take(queue).map_err(told)?.into_iter().map(|(number, _)| number).collect())
    };
    let (left, mut out) = (take(IN)?, take(OUT)?);
    out.sort_unstable();
    if out != committed {
        figures.found.push(format!("{OUT} has {} messages, and {} were committed", out.len(), committed.len()));
    }
    let rest: Vec<u64> = (0..deaths).filter(|number| committed.binary_search(number).is_err()).collect();
    if left != rest {
        figures.found.push(format!("{IN} has {} messages in this order, not the {} others", left.len(), rest.len()));
    }
    let rolled_back = figures.of("rolled back");
    if rolled_back != left.len() as u64 {
        figures.found.push(format!("{rolled_back} were rolled back, and {} are left", left.len()));
    }
    Ok(())
}
