//! The table of fault scenarios: which are proved, and where, told by the names of tests.
//!
//! Titles and what is missing come from `xtask/scenarios.toml`. Must not do: believe that file about what is there.

use super::{header, row};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The file of titles.
const TITLES: &str = "xtask/scenarios.toml";
/// Scenarios are numbered from 1 to this.
const LAST: u32 = 100;
/// Folders with sources, and what their tests prove something about; the longest prefix decides.
const PLACES: [(&str, &str); 13] = [
    ("core/model", "model"),
    ("core/store", "store"),
    ("core/journal", "journal"),
    ("core/queue", "queue"),
    ("core/txn", "transactions"),
    ("core/broker", "broker"),
    ("core/amqp10", "protocol"),
    ("core/client", "client"),
    ("core/history", "checker"),
    ("shell", "shell"),
    ("apps", "command line"),
    ("testing/sim", SIMULATOR),
    ("testing/crash", BINARY),
];
const SIMULATOR: &str = "simulator";
const BINARY: &str = "real binary";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Titles {
    process: BTreeSet<u32>,
    rest: BTreeMap<String, String>,
    section: Vec<Section>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    name: String,
    with: Option<String>,
    scenarios: BTreeMap<String, Scenario>,
}

#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum Scenario {
    Title(String),
    Waits { title: String, with: String },
}

/// Tests by scenario and place.
type Tests = BTreeMap<u32, BTreeMap<&'static str, u64>>;

/// The table, from titles and sources.
pub(super) fn render(root: &Path) -> Result<String, String> {
    let titles = super::read(root, TITLES)?;
    let titles: Titles = toml::from_str(&titles).map_err(|error| format!("{TITLES}: {error}"))?;
    let mut tests = Tests::new();
    for top in ["core", "shell", "apps", "testing"] {
        search(root, Path::new(top), &mut tests)?;
    }
    table(&titles, &tests)
}

/// Adds the tests of a folder.
fn search(root: &Path, folder: &Path, tests: &mut Tests) -> Result<(), String> {
    let wrong = |error: std::io::Error| format!("cannot read {}: {error}", folder.display());
    for entry in fs::read_dir(root.join(folder)).map_err(wrong)? {
        let entry = entry.map_err(wrong)?;
        let path = folder.join(entry.file_name());
        if entry.file_type().map_err(wrong)?.is_dir() {
            if entry.file_name() != "target" {
                search(root, &path, tests)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let place = PLACES.iter().find(|(prefix, _)| path.starts_with(prefix)).map(|(_, place)| *place);
            let text = fs::read_to_string(root.join(&path)).map_err(wrong)?;
            for number in scenarios(&text) {
                let place =
                    place.ok_or_else(|| format!("{}: tests of scenarios have no place here", path.display()))?;
                *tests.entry(number).or_default().entry(place).or_default() += 1;
            }
        }
    }
    Ok(())
}

/// The scenario of each test that has one in its name.
fn scenarios(text: &str) -> Vec<u32> {
    let mut found = Vec::new();
    let mut test = false;
    for line in text.lines().map(str::trim) {
        if line == "#[test]" {
            test = true;
        } else if let Some(name) = line.strip_prefix("fn ").filter(|_| test) {
            let number = name.strip_prefix("fs_").and_then(|rest| rest.split('_').next()?.parse::<u32>().ok());
            found.extend(number);
            test = false;
        } else if !line.starts_with("#[") && !line.starts_with("//") {
            test = false;
        }
    }
    found
}

fn table(titles: &Titles, tests: &Tests) -> Result<String, String> {
    let mut text = String::new();
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for section in &titles.section {
        text += &format!("### {}\n\n{}", section.name, header(["scenario", "", "state", "places"]));
        let mut scenarios = section
            .scenarios
            .iter()
            .map(|(number, scenario)| Ok((number.parse().map_err(|_| format!("{TITLES}: `{number}`"))?, scenario)))
            .collect::<Result<Vec<(u32, &Scenario)>, String>>()?;
        scenarios.sort_unstable_by_key(|(number, _)| *number);
        for (number, scenario) in scenarios {
            let (title, with) = match scenario {
                Scenario::Title(title) => (title, section.with.as_ref()),
                Scenario::Waits { title, with } => (title, Some(with)),
            };
            if !seen.insert(number) {
                return Err(format!("{TITLES}: FS-{number:02} is there twice"));
            }
            let places = tests.get(&number).cloned().unwrap_or_default();
            let (state, sum) = state(titles, number, with, &places);
            *sums.entry(sum).or_default() += 1;
            let places: Vec<String> = places
                .iter()
                .map(|(place, count)| if *count == 1 { (*place).to_owned() } else { format!("{place} ({count})") })
                .collect();
            text += &row([format!("FS-{number:02}"), title.clone(), state, places.join(", ")]);
        }
        text += "\n";
    }
    if !seen.iter().copied().eq(1..=LAST) {
        return Err(format!("{TITLES} must have FS-01 to FS-{LAST}"));
    }
    if let Some(number) = tests.keys().find(|number| !seen.contains(number)) {
        return Err(format!("a test is named fs_{number:02}, and there is no such scenario"));
    }
    let sums: Vec<String> = sums.iter().map(|(state, count)| format!("{count} {state}")).collect();
    Ok(format!("{}.\n\n{text}", sums.join(", ")))
}

/// What is to be said of a scenario, and the word under which it is counted.
fn state(titles: &Titles, number: u32, with: Option<&String>, places: &BTreeMap<&str, u64>) -> (String, &'static str) {
    if places.is_empty() {
        return match with {
            Some(with) => (format!("with {with}"), "wait for what they need"),
            None => ("open".to_owned(), "open"),
        };
    }
    let mut missing: Vec<&str> = titles.rest.get(&number.to_string()).map(String::as_str).into_iter().collect();
    if !places.contains_key(SIMULATOR) {
        missing.push("not in the simulator");
    }
    if titles.process.contains(&number) && !places.contains_key(BINARY) {
        missing.push("not on the real binary");
    }
    if missing.is_empty() {
        ("proved".to_owned(), "proved")
    } else {
        (format!("partly ({})", missing.join("; ")), "partly proved")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tests_count_and_only_by_their_names() {
        let test = concat!("#[", "test]\n");
        let text = format!(
            "fn fs_01_a_helper() {{}}\n{test}fn fs_47_killed() {{}}\n    {test}    // Why.\n    #[expect(x)]\n    fn fs_100_b() {{}}\n\
             {test}fn other() {{}}\nfn fs_02_c() {{}}\n{test}fn fs_x() {{}}\n"
        );
        assert_eq!(scenarios(&text), [47, 100]);
    }

    fn titles(process: &[u32]) -> Titles {
        let scenarios = (1..=LAST).map(|number| match number {
            3 => (number.to_string(), Scenario::Waits { title: "third".to_owned(), with: "lanes".to_owned() }),
            _ => (number.to_string(), Scenario::Title(format!("title {number}"))),
        });
        Titles {
            process: process.iter().copied().collect(),
            rest: BTreeMap::from([("4".to_owned(), "half of it comes later".to_owned())]),
            section: vec![Section { name: "All".to_owned(), with: None, scenarios: scenarios.collect() }],
        }
    }

    #[test]
    fn a_scenario_is_proved_where_it_belongs_or_the_table_says_what_is_missing() {
        let places = |places: &[&'static str]| places.iter().map(|place| (*place, 1)).collect::<BTreeMap<_, _>>();
        let tests = Tests::from([
            (1, places(&[SIMULATOR])),
            (2, places(&["queue", SIMULATOR])),
            (4, places(&[SIMULATOR])),
            (5, BTreeMap::from([("queue", 2)])),
        ]);
        let text = table(&titles(&[2]), &tests).expect("all numbers are there");
        for line in [
            "1 proved, 3 partly proved, 95 open, 1 wait",
            "| FS-01 | title 1 | proved | simulator |",
            "| FS-02 | title 2 | partly (not on the real binary) | queue, simulator |",
            "| FS-03 | third | with lanes |  |",
            "| FS-04 | title 4 | partly (half of it comes later) | simulator |",
            "| FS-05 | title 5 | partly (not in the simulator) | queue (2) |",
            "| FS-100 | title 100 | open |  |",
        ] {
            let found = line.split(", ").all(|part| text.contains(part));
            assert!(if line.starts_with('|') { text.contains(line) } else { found }, "{line}: {text}");
        }
    }

    #[test]
    fn numbers_that_do_not_fit_are_told() {
        let tests = Tests::from([(101, BTreeMap::from([(SIMULATOR, 1)]))]);
        assert!(table(&titles(&[]), &tests).expect_err("no such scenario").contains("fs_101"));
        let mut few = titles(&[]);
        few.section[0].scenarios.remove("77");
        assert!(table(&few, &Tests::new()).expect_err("one is missing").contains("FS-100"));
    }
}
