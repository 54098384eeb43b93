//! The coverage table of a campaign: state of an entry × event × fault, and what of it must not be empty.

use super::outcome::Cells;
use crate::fault::Kind;
use packhorse_queue::entry::{Event, State, transition};
use std::fmt::Write;

/// Hits without which a long run has not seen a kind of fault (`spec/checker.md`).
const HITS: u64 = 20;

/// Seeds from which on a campaign has to have seen everything. The rarest kinds hit once in three worlds, the rarest transition about once in
/// forty: in 1,000 worlds none is missing by chance.
const SEEDS: u64 = 1_000;

fn cell(state: State, event: Event) -> usize {
    state as usize * Event::ALL.len() + event as usize
}

/// The pairs that an entry allows.
fn pairs() -> Vec<(State, Event)> {
    let all = State::ALL.into_iter().flat_map(|state| Event::ALL.into_iter().map(move |event| (state, event)));
    all.filter(|(state, event)| transition(*state, *event).is_ok()).collect()
}

/// What is missing after so many seeds: kinds that hit too little, pairs and kinds without a transition. A sentence each.
pub(crate) fn gaps(seeds: u64, hits: &[u64; Kind::COUNT], cells: &Cells) -> Vec<String> {
    let mut gaps = Vec::new();
    if seeds < SEEDS {
        return gaps;
    }
    for kind in Kind::ALL {
        let hits = hits[kind as usize];
        if hits < HITS {
            gaps.push(format!("blind: {} hit work in flight {hits} times, {HITS} are wanted", kind.name()));
        }
        if cells[kind as usize].iter().all(|count| *count == 0) {
            gaps.push(format!("blind: no entry changed its state during {}", kind.name()));
        }
    }
    for (state, event) in pairs() {
        let count: u64 = cells.iter().map(|cells| cells[cell(state, event)]).sum();
        if count == 0 {
            gaps.push(format!("blind: no entry in state {state:?} ever took {event:?}"));
        }
    }
    gaps
}

/// In four places.
fn short(count: u64) -> String {
    match count {
        0 => ".".to_owned(),
        1..=9_999 => count.to_string(),
        10_000..=999_999 => format!("{}k", count / 1_000),
        1_000_000..=999_999_999 => format!("{}M", count / 1_000_000),
        _ => format!("{}G", count / 1_000_000_000),
    }
}

/// The table: a row for each kind of fault, a column for each pair.
pub(crate) fn table(hits: &[u64; Kind::COUNT], cells: &Cells) -> String {
    let pairs = pairs();
    let mut text = String::from("transitions of entries while a fault lasted\n");
    for (at, (state, event)) in pairs.iter().enumerate() {
        let _written = writeln!(text, "  {} = {state:?} × {event:?}", letter(at));
    }
    let _written = write!(text, "{:<22}{:>8}", "fault", "hits");
    for at in 0..pairs.len() {
        let _written = write!(text, "{:>6}", letter(at));
    }
    text.push('\n');
    let names = Kind::ALL.into_iter().map(Kind::name).chain(["none"]);
    for (row, name) in names.enumerate() {
        let hits = hits.get(row).map_or(String::new(), u64::to_string);
        let _written = write!(text, "{name:<22}{hits:>8}");
        for (state, event) in &pairs {
            let _written = write!(text, "{:>6}", short(cells[row][cell(*state, *event)]));
        }
        text.push('\n');
    }
    text
}

/// The name of a column: a to z, then aa to az.
fn letter(at: usize) -> String {
    let letter = char::from(b'a' + (at % 26) as u8);
    if at < 26 { letter.to_string() } else { format!("a{letter}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coverage::CELLS;

    #[test]
    fn what_is_missing_is_named() {
        let (mut hits, mut cells) = ([HITS; Kind::COUNT], vec![[1; CELLS]; Kind::COUNT + 1]);
        assert_eq!(gaps(SEEDS, &hits, &cells), [""; 0]);
        hits[Kind::Kill as usize] = HITS - 1;
        cells[Kind::Stop as usize] = [0; CELLS];
        for (state, event) in [(State::Acquired, Event::Postpone), (State::Staged, Event::Abandon)] {
            cells.iter_mut().for_each(|cells| cells[cell(state, event)] = 0);
        }
        assert_eq!(gaps(SEEDS - 1, &hits, &cells), [""; 0], "it was too short to say");
        let gaps = gaps(SEEDS, &hits, &cells);
        assert_eq!(gaps.len(), 4, "{gaps:?}");
        for (gap, word) in gaps.iter().zip(["kill", "stop", "Abandon", "Postpone"]) {
            assert!(gap.contains(word), "{gap}");
        }
    }

    #[test]
    fn the_table_has_a_row_for_each_kind() {
        let text = table(&[7; Kind::COUNT], &vec![[12_345; CELLS]; Kind::COUNT + 1]);
        for name in Kind::ALL.into_iter().map(Kind::name).chain(["none"]) {
            let row = text.lines().find(|line| line.split(' ').next() == Some(name)).expect(name);
            assert_eq!(row.matches("12k").count(), pairs().len(), "{row}");
        }
    }
}
