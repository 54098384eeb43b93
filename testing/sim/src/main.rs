//! `packhorse-sim --seed N` runs one world, `--seeds N` a campaign of many.

use packhorse_history::MessageId;
use packhorse_sim::{Campaign, Kind, Settings, Verdict, numbers, story, trial, work};
use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "\
packhorse-sim --seed N [--faults 3,17] [--shards S] [--about PRODUCER/SEQUENCE|BOOK]
packhorse-sim --seeds N [--from S] [--jobs J] [--dir DIR] [--report FILE] [--commit TEXT]

  --seed N       one world, and what it came to
  --faults LIST  of its faults only these, by number; `-`: none
  --no-operators operators do nothing; a seed that still fails does not need them
  --shards S     shards of each broker; by default the seed says
  --about X      the story of a message, or of a book of the history (`world`, `client-3`)
  --seeds N      worlds of N seeds; goes on where a run with the same program and folder was stopped
  --from S       the first seed; 1 by default
  --jobs J       processes side by side; 2 by default
  --dir DIR      where the state is kept; target/sim by default
  --report FILE  what all of it came to, as JSON
  --commit TEXT  what is built, for the report

With the feature `planted`: `packhorse-sim planted [--seeds N] [NAME…]` looks for each fault that is planted in the broker, or for
these, in at most N worlds; `--planted NAME` beside --seed plants one in that world.
";

/// Shards of a broker, at most: more than any machine of today has cores for.
const SHARDS_MOST: u64 = 64;

/// The command line: names with values, each at most once.
struct Arguments(Vec<String>);

impl Arguments {
    fn text(&mut self, name: &str) -> Result<Option<String>, String> {
        let Some(at) = self.0.iter().position(|argument| argument == name) else { return Ok(None) };
        if at + 1 == self.0.len() {
            return Err(format!("{name} needs a value"));
        }
        self.0.remove(at);
        Ok(Some(self.0.remove(at)))
    }

    fn number(&mut self, name: &str) -> Result<Option<u64>, String> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        text.parse().map(Some).map_err(|_| format!("{name} needs a number, not `{text}`"))
    }

    fn flag(&mut self, name: &str) -> bool {
        let at = self.0.iter().position(|argument| argument == name);
        at.map(|at| self.0.remove(at)).is_some()
    }

    fn end(self) -> Result<(), String> {
        self.0.first().map_or(Ok(()), |first| Err(format!("`{first}` means nothing here")))
    }
}

fn main() -> ExitCode {
    let mut arguments = Arguments(std::env::args().skip(1).collect());
    if arguments.0 == ["--worker"] {
        return match work() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("packhorse-sim: {error}");
                ExitCode::FAILURE
            }
        };
    }
    #[cfg(feature = "planted")]
    if arguments.0.first().is_some_and(|verb| verb.starts_with("planted")) {
        return ended(planted(arguments));
    }
    let result = match arguments.number("--seed") {
        Ok(Some(seed)) => one(seed, arguments),
        Ok(None) => many(arguments),
        Err(why) => Err(why),
    };
    ended(result)
}

fn ended(result: Result<bool, String>) -> ExitCode {
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("packhorse-sim: {why}\n\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// The table of faults, or the process of one of them.
#[cfg(feature = "planted")]
fn planted(mut arguments: Arguments) -> Result<bool, String> {
    let (verb, seeds) = (arguments.0.remove(0), arguments.number("--seeds")?);
    match (verb.as_str(), seeds, arguments.0.as_slice()) {
        ("planted", ..) => packhorse_sim::planted(&arguments.0, seeds),
        ("planted-one", Some(seeds), [name]) => packhorse_sim::planted_one(name, seeds),
        _ => Err(format!("`{verb}` means nothing here")),
    }
}

fn many(mut arguments: Arguments) -> Result<bool, String> {
    let campaign = Campaign {
        seeds: arguments.number("--seeds")?.ok_or("--seed or --seeds is wanted")?,
        from: arguments.number("--from")?.unwrap_or(1),
        jobs: arguments.number("--jobs")?.unwrap_or(2) as usize,
        dir: arguments.text("--dir")?.map_or_else(|| PathBuf::from("target/sim"), PathBuf::from),
        report: arguments.text("--report")?.map(PathBuf::from),
        commit: arguments.text("--commit")?.unwrap_or_else(|| "this program".into()),
    };
    arguments.end()?;
    campaign.run().map_err(|error| error.to_string())
}

fn one(seed: u64, mut arguments: Arguments) -> Result<bool, String> {
    let faults = match arguments.text("--faults")? {
        None => None,
        Some(text) => Some(numbers(&text).ok_or(format!("--faults needs numbers, not `{text}`"))?),
    };
    let shards = match arguments.number("--shards")? {
        None => None,
        Some(shards @ 1..=SHARDS_MOST) => Some(shards as u16),
        Some(shards) => return Err(format!("--shards needs a number from 1 to {SHARDS_MOST}, not {shards}")),
    };
    let about = arguments.text("--about")?;
    #[cfg(feature = "planted")]
    if let Some(name) = arguments.text("--planted")? {
        packhorse_sim::plant(&name)?;
    }
    let operators = !arguments.flag("--no-operators");
    arguments.end()?;
    let verdict = trial(&Settings { seed, shards, faults, operators, notes: about.is_some() });
    println!("seed {seed} digest {:016x} {:?}", verdict.digest, verdict.totals);
    for fault in &verdict.faults {
        println!("  {:>6} {:>10} µs {} {}", fault.number, fault.at_us, fault.host, fault.kind.name());
    }
    let hits = Kind::ALL.iter().map(|kind| (kind.name(), verdict.hits[*kind as usize])).filter(|(_, hits)| *hits > 0);
    let hits: Vec<String> = hits.map(|(name, hits)| format!("{name} {hits}")).collect();
    println!("  hits: {}", hits.join(", "));
    for breach in &verdict.breaches {
        println!("  BREACH {breach}");
    }
    match about {
        Some(about) => tell(&verdict, &about),
        None if verdict.breaches.is_empty() => {}
        None => println!(
            "  add `--about PRODUCER/SEQUENCE` for the story of a message, `--about world` for that of the brokers"
        ),
    }
    Ok(verdict.breaches.is_empty())
}

/// Prints a story.
fn tell(verdict: &Verdict, about: &str) {
    let message = about.split_once('/').and_then(|(p, n)| Some(MessageId::new(p.parse().ok()?, n.parse().ok()?)));
    let mut lines = story(&verdict.files, message, about);
    lines.extend(verdict.notes.iter().map(|(at, what)| format!("{at:>12}.000 {what}")));
    lines.sort();
    for line in lines {
        println!("{line}");
    }
}
