//! `packhorse-sim --seed N` runs one world.

use packhorse_sim::{Kind, Settings, run};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| -> Option<u64> {
        let at = arguments.iter().position(|a| a == name)?;
        arguments.get(at + 1)?.parse().ok()
    };
    let text = |name: &str| arguments.iter().position(|a| a == name).and_then(|at| arguments.get(at + 1)).cloned();
    let (first, last) = match (value("--seed"), value("--seeds")) {
        (Some(seed), None) => (seed, seed),
        (first, Some(count)) => (first.unwrap_or(1), first.unwrap_or(1) + count - 1),
        _ => (1, 1),
    };
    for seed in first..=last {
        let shards = value("--shards").map(|shards| shards as u16);
        let verdict = run(&Settings { shards, notes: text("--about").is_some(), ..Settings::new(seed) });
        println!("seed {seed} digest {:016x} {:?}", verdict.digest, verdict.totals);
        let hits: Vec<String> = Kind::ALL
            .iter()
            .filter(|k| verdict.hits[**k as usize] > 0)
            .map(|k| format!("{} {}", k.name(), verdict.hits[*k as usize]))
            .collect();
        println!("  {}", hits.join(", "));
        for breach in &verdict.breaches {
            println!("  BREACH {breach}");
        }
        if let Some(about) = text("--about") {
            let message = about
                .split_once('/')
                .and_then(|(p, n)| Some(packhorse_history::MessageId::new(p.parse().ok()?, n.parse().ok()?)));
            let mut lines = packhorse_sim::story(&verdict.files, message, &about);
            lines.extend(verdict.notes.iter().map(|(at, what)| format!("{:>12}.000 {what}", at)));
            lines.sort();
            for line in lines {
                println!("{line}");
            }
        }
    }
}
