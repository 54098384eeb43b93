//! Runs, one after the other, until enough kills count; what they came to together.

use super::network::Hits;
use super::plan::{Clients, Plan, is_foreign};
use super::process::{Death, Setup};
use super::run::{self, Outcome};
use super::tally::InFlight;
use packhorse_history::Invariant;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Of the persistent messages that were confirmed, so many of a hundred must have been judged for loss.
const JUDGED_LEAST: u64 = 95;
/// With faults of the network, each kind must hit once in so many kills: 20 times in 400.
const KILLS_EACH: u64 = 20;
/// Kills may be repeated: so many are made at most for each that is to count.
const MADE_MOST: u64 = 3;

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The broker.
    pub bin: PathBuf,
    /// More variables of its environment.
    pub environment: Vec<(String, String)>,
    /// This program: its verbs are the clients.
    pub program: PathBuf,
    /// Foreign clients for one run in four, with their first arguments.
    pub foreign: Option<Vec<String>>,
    /// Where runs put their files: a folder each, removed if nothing is broken.
    pub dir: PathBuf,
    /// The first run's; each further run has the next one.
    pub seed: u64,
    /// So many kills are to count.
    pub kills: u64,
    /// Kills of a run.
    pub kills_per_run: u32,
    /// Clients work through a proxy that disturbs their connections.
    pub faults: bool,
    /// Folders of runs stay.
    pub keep: bool,
    /// The command that makes these runs again, up to its numbers.
    pub command: String,
}

/// What it came to. Runs end with the first in which something is broken.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// The first run's seed.
    pub seed: u64,
    /// Kills that count.
    pub counted: u64,
    /// Kills made.
    pub made: u64,
    /// Runs.
    pub runs: u64,
    /// Of these with foreign clients.
    pub foreign: u64,
    /// Messages confirmed.
    pub confirmed: u64,
    /// Acknowledgements answered.
    pub acknowledged: u64,
    /// Deliveries that were flagged.
    pub redelivered: u64,
    /// Dead letters.
    pub dead_letters: u64,
    /// Processes stopped and continued.
    pub pauses: u64,
    /// What the network did, where that was asked for.
    pub hits: Option<Hits>,
    /// Brokers killed before they were ready.
    pub killed_starting: u64,
    /// Brokers stopped in order, the last of each run aside.
    pub stopped: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Kills while one was being written.
    pub checkpoints_under_way: u64,
    /// Times in which the machine was too slow for I9.
    pub stalls: u64,
    /// Files of large messages at the kills.
    pub large_files: u64,
    /// Persistent messages that were confirmed.
    pub confirmed_persistent: u64,
    /// Local transactions that were committed.
    pub committed: u64,
    /// Branches that were decided.
    pub decided: u64,
    /// Kills while the end of a transaction was asked for.
    pub amid_decisions: u64,
    /// Kills while branches were in doubt.
    pub amid_doubt: u64,
    /// By invariant, how much was judged.
    pub judged: Vec<(Invariant, u64)>,
    /// Broken invariants, and how often.
    pub violated: Vec<(Invariant, u64)>,
    /// What else is broken.
    pub broken: Vec<String>,
    /// The first thing that is broken.
    pub evidence: Option<String>,
    /// How to do the run again in which something is broken.
    pub replay: Option<String>,
    /// The word for a kill.
    pub word: &'static str,
}

impl Verdict {
    /// Nothing is broken.
    pub fn is_clean(&self) -> bool {
        self.violated.is_empty() && self.broken.is_empty()
    }

    fn add(&mut self, outcome: &Outcome) {
        let tally = &outcome.tally;
        self.counted += outcome.counted() as u64;
        self.made += tally.kills.len() as u64;
        self.runs += 1;
        self.foreign += u64::from(outcome.foreign);
        self.redelivered += tally.redelivered;
        self.dead_letters += outcome.dead_letters;
        self.pauses += outcome.pauses;
        if let Some(hits) = &mut self.hits {
            hits.add(&outcome.hits);
        }
        self.killed_starting += outcome.killed_starting;
        self.stopped += outcome.stopped;
        self.checkpoints += outcome.checkpoints;
        self.checkpoints_under_way += outcome.checkpoints_under_way;
        self.stalls += outcome.stalls;
        self.large_files += outcome.large_files;
        self.confirmed_persistent += tally.confirmed_persistent;
        self.committed += tally.committed;
        self.decided += tally.decided;
        let kills = |counts: fn(&InFlight) -> u64| tally.kills.iter().filter(|kill| counts(kill) > 0).count() as u64;
        self.amid_decisions += kills(|kill| kill.deciding);
        self.amid_doubt += kills(|kill| kill.in_doubt);
        self.broken.extend(outcome.broken.iter().cloned());
        if self.judged.is_empty() {
            self.judged = Invariant::ALL.map(|invariant| (invariant, 0)).to_vec();
        }
        if let Some(report) = &outcome.report {
            self.confirmed += report.totals.confirmed;
            self.acknowledged += report.totals.acknowledged_confirmed;
            self.judged.iter_mut().for_each(|(invariant, sum)| *sum += report.judged(*invariant));
            let judged = report.judged(Invariant::Lost);
            if outcome.broken.is_empty() && judged * 100 < tally.confirmed_persistent * JUDGED_LEAST {
                let all = tally.confirmed_persistent;
                self.broken.push(format!("blind: I1 judged {judged} of {all} confirmed persistent messages"));
            }
        }
        self.violated = outcome.violated();
        self.evidence = outcome.evidence().or_else(|| self.broken.first().cloned());
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let judged: Vec<String> = self.judged.iter().map(|(one, count)| format!("{} {count}", one.code())).collect();
        writeln!(f, "judged: {}; {} persistent messages confirmed", judged.join(", "), self.confirmed_persistent)?;
        writeln!(
            f,
            "{} runs, {} of them with foreign clients; {} stalls of the machine; {} starts killed, {} stops in order; at {}s: {} checkpoints being written, {} files of large messages",
            self.runs,
            self.foreign,
            self.stalls,
            self.killed_starting,
            self.stopped,
            self.word,
            self.checkpoints_under_way,
            self.large_files
        )?;
        writeln!(
            f,
            "{} transactions committed, {} branches decided; at {} {}s the end of one was asked for, at {} branches were in doubt",
            self.committed, self.decided, self.amid_decisions, self.word, self.amid_doubt
        )?;
        if let Some(hits) = &self.hits {
            writeln!(f, "faults of the network while work was in flight: {hits}")?;
        }
        let violations: u64 = self.violated.iter().map(|(_, count)| count).sum();
        write!(
            f,
            "{} {}s counted ({} made), {} confirmed, {} acknowledged, {} redelivered, {} dead letters, {} pauses, {} checkpoints: ",
            self.counted,
            self.word,
            self.made,
            self.confirmed,
            self.acknowledged,
            self.redelivered,
            self.dead_letters,
            self.pauses,
            self.checkpoints
        )?;
        match self.broken.len() {
            0 => write!(f, "{violations} violations"),
            more => write!(f, "{violations} violations, and {more} times something else"),
        }
    }
}

impl Campaign {
    /// Makes the runs; prints a line for each. Err: the harness itself fails, a sentence.
    pub fn run(&self, death: &mut dyn Death) -> Result<Verdict, String> {
        let hits = self.faults.then(Hits::default);
        let mut verdict = Verdict { word: death.word(), seed: self.seed, hits, ..Verdict::default() };
        let begin = Instant::now();
        let mut seed = self.seed;
        while verdict.counted < self.kills {
            if verdict.made >= self.kills * MADE_MOST + u64::from(self.kills_per_run) {
                verdict.broken.push(format!("blind: of {} kills only {} counted", verdict.made, verdict.counted));
                break;
            }
            let kills = (self.kills - verdict.counted).min(self.kills_per_run.into()) as u32;
            let outcome = self.one(seed, kills, death)?;
            verdict.add(&outcome);
            println!("{}", describe(&outcome, &verdict, begin.elapsed()));
            let folder = self.folder(seed);
            if verdict.is_clean() {
                if !self.keep {
                    fs::remove_dir_all(&folder).map_err(|e| format!("cannot remove {}: {e}", folder.display()))?;
                }
            } else {
                verdict.replay = Some(self.replay(seed));
                self.explain(&outcome, &verdict, &folder);
                break;
            }
            seed += 1;
        }
        if verdict.is_clean() {
            verdict.broken = blind(&verdict, self.kills);
            verdict.evidence = verdict.broken.first().cloned();
            verdict.broken.iter().for_each(|broken| println!("  {broken}"));
        }
        Ok(verdict)
    }

    fn folder(&self, seed: u64) -> PathBuf {
        self.dir.join(format!("run-{seed}"))
    }

    fn one(&self, seed: u64, kills: u32, death: &mut dyn Death) -> Result<Outcome, String> {
        let dir = self.folder(seed);
        if dir.exists() {
            fs::remove_dir_all(&dir).map_err(|e| format!("cannot remove {}: {e}", dir.display()))?;
        }
        fs::create_dir_all(&dir).map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
        let clients = match &self.foreign {
            Some(words) if is_foreign(seed) => Clients::Foreign(words.clone()),
            _ => Clients::Ours,
        };
        let mut plan = Plan::new(seed, kills, self.program.clone(), clients);
        plan.faults = self.faults;
        let [amqp, http] = Setup::free_ports(seed)?;
        let mut setup = Setup {
            bin: self.bin.clone(),
            data: dir.join("data"),
            dir,
            settings: Vec::new(),
            shards: 1,
            environment: self.environment.clone(),
            amqp,
            http,
        };
        death.begin_run(&mut setup)?;
        let outcome = run::run(&plan, setup, death);
        death.end_run(!self.keep && outcome.as_ref().is_ok_and(Outcome::is_clean))?;
        outcome
    }

    fn replay(&self, seed: u64) -> String {
        let commit = commit().unwrap_or_else(|| "unknown".to_owned());
        let faults = if self.faults { " --faults" } else { "" };
        format!("{} {}{faults} --seed {seed}   (commit {commit})", self.command, self.kills_per_run)
    }

    fn explain(&self, outcome: &Outcome, verdict: &Verdict, folder: &Path) {
        if let Some(report) = outcome.report.as_ref().filter(|report| !report.is_clean()) {
            const SHOWN: usize = 20;
            report.violations().iter().take(SHOWN).for_each(|violation| println!("  {violation}"));
            if report.violation_count() > SHOWN as u64 {
                println!("  … and {} more", report.violation_count() - SHOWN as u64);
            }
        }
        verdict.broken.iter().for_each(|broken| println!("  {broken}"));
        println!("  histories, logs and data: {}", folder.display());
        println!("  again: {}", verdict.replay.as_deref().unwrap_or_default());
    }
}

/// Faults that hit too seldom for so many kills, and kills that met transactions too seldom, a sentence each.
fn blind(verdict: &Verdict, kills: u64) -> Vec<String> {
    let least = match kills {
        // One run alone, to do it again.
        0..10 => 0,
        kills => (kills / KILLS_EACH).max(1),
    };
    let met = [("amid the end of a transaction", verdict.amid_decisions), ("amid doubt", verdict.amid_doubt)];
    let faults = verdict.hits.iter().flat_map(|hits| hits.each().chain([("pause", verdict.pauses)]));
    let seldom = faults.chain(met).filter(|(_, hits)| *hits < least);
    seldom.map(|(kind, hits)| format!("blind: `{kind}` hit {hits} times, not {least}")).collect()
}

/// The commit of the sources, if git knows it.
fn commit() -> Option<String> {
    let output = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn describe(outcome: &Outcome, verdict: &Verdict, elapsed: Duration) -> String {
    let flights: Vec<String> = outcome
        .tally
        .kills
        .iter()
        .map(|kill| {
            let mark = if kill.counts() { "" } else { " (does not count)" };
            format!("{}+{}{mark}", kill.unconfirmed, kill.unacknowledged)
        })
        .collect();
    let confirmed = outcome.report.as_ref().map_or(0, |report| report.totals.confirmed);
    let faults = if verdict.hits.is_some() { format!("{} faults hit, ", outcome.hits.sum()) } else { String::new() };
    format!(
        "run {}{}: in flight {}; {faults}{confirmed} confirmed, {} dead letters, {} checkpoints, {:.1} s: {}; {} counted after {:.0} s",
        outcome.seed,
        if outcome.foreign { " (foreign clients)" } else { "" },
        flights.join(" "),
        outcome.dead_letters,
        outcome.checkpoints,
        outcome.took.as_secs_f64(),
        if verdict.is_clean() { "clean" } else { "BROKEN" },
        verdict.counted,
        elapsed.as_secs_f64(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Tally;
    use std::io::Cursor;

    fn campaign() -> Campaign {
        Campaign {
            bin: "packhorse".into(),
            environment: Vec::new(),
            program: "packhorse-crash".into(),
            foreign: None,
            dir: "target/crash".into(),
            seed: 7,
            kills: 20,
            kills_per_run: 5,
            faults: false,
            keep: false,
            command: "cargo xtask crash --kills".into(),
        }
    }

    #[test]
    fn the_line_that_does_it_again_has_seed_and_commit() {
        let line = campaign().replay(9);
        assert!(line.starts_with("cargo xtask crash --kills 5 --seed 9   (commit "), "{line}");
        let line = Campaign { faults: true, ..campaign() }.replay(9);
        assert!(line.starts_with("cargo xtask crash --kills 5 --faults --seed 9   (commit "), "{line}");
    }

    #[test]
    fn a_campaign_whose_network_did_little_is_blind() {
        let mut verdict = Verdict { pauses: 20, amid_decisions: 20, amid_doubt: 20, ..Verdict::default() };
        assert!(blind(&verdict, 400).is_empty(), "nothing was asked of the network");
        verdict.hits = Some(Hits::default());
        assert!(blind(&verdict, 5).is_empty(), "one run is done again");
        let seldom = blind(&verdict, 400);
        assert_eq!((seldom.len(), seldom[0].as_str()), (10, "blind: `blackhole to broker` hit 0 times, not 20"));
        verdict.pauses = 19;
        assert_eq!(blind(&verdict, 400).len(), 11);
        assert_eq!(blind(&verdict, 20).len(), 10);
    }

    #[test]
    fn a_campaign_whose_kills_met_no_transactions_is_blind() {
        let mut verdict = Verdict::default();
        for (deciding, in_doubt) in [(1, 0), (0, 3), (2, 2), (0, 0)] {
            let mut met = outcome(&[500], 0);
            (met.tally.kills[0].deciding, met.tally.kills[0].in_doubt) = (deciding, in_doubt);
            verdict.add(&met);
        }
        assert_eq!((verdict.amid_decisions, verdict.amid_doubt), (2, 2));
        assert!(blind(&verdict, 40).is_empty() && blind(&Verdict::default(), 9).is_empty());
        let seldom = blind(&verdict, 60);
        assert_eq!((seldom.len(), seldom[1].as_str()), (2, "blind: `amid doubt` hit 2 times, not 3"));
    }

    fn outcome(kills: &[u64], confirmed_persistent: u64) -> Outcome {
        // A history of nobody who did anything: the checker has nothing to say.
        let none: [(String, Cursor<&[u8]>); 0] = [];
        let report = packhorse_history::check_files(none, &packhorse_history::Options::default()).unwrap();
        let kills =
            kills.iter().map(|&n| InFlight { unconfirmed: n, unacknowledged: n, ..InFlight::default() }).collect();
        Outcome {
            tally: Tally { kills, confirmed_persistent, redelivered: 3, ..Tally::default() },
            report: Some(report),
            ..Outcome::default()
        }
    }

    #[test]
    fn kills_with_too_little_in_flight_are_made_and_not_counted() {
        let mut verdict = Verdict { word: "kill", ..Verdict::default() };
        verdict.add(&outcome(&[500, 199, 200], 0));
        verdict.add(&outcome(&[500], 0));
        assert_eq!((verdict.counted, verdict.made, verdict.redelivered), (3, 4, 6));
        assert!(verdict.is_clean());
        let text = verdict.to_string();
        assert!(text.ends_with(": 0 violations") && text.contains("3 kills counted (4 made)"), "{text}");
    }

    #[test]
    fn a_checker_that_judged_next_to_nothing_is_blind() {
        let mut verdict = Verdict::default();
        verdict.add(&outcome(&[500], 1_000));
        assert!(!verdict.is_clean());
        assert!(verdict.evidence.as_deref().is_some_and(|text| text.starts_with("blind")), "{verdict:?}");
    }
}
