//! The state machine of an entry, pair by pair, and its graph in `docs/states/entry.md`, which is generated from the code.
#![expect(clippy::disallowed_methods, reason = "the snapshot is a file of the repository")]

use packhorse_queue::entry::{Event, Reason, Record, State, Transition, transition};
use std::fmt::Write as _;
use std::path::Path;

/// What each event (column) does in each state (row): `.` is illegal, otherwise the state after, `+1` for deliveries,
/// `+1+1` for deliveries and attempts, and the record. Written by hand from `spec/entry.md`; not derived from the code.
const TABLE: &str = "
           Durable    Abandon         Dispatch  Acknowledge                    ReturnUnseen  ReturnModified       ReturnSeen               ReturnLost             Divert     Stay       Postpone   DeadLetter                  Move                 Damage   Purge                    Remove    Commit                     CommitUnseen       CommitSeen             Rollback                 DecideRollback
Staged     Available  Gone:Abandoned  .         .                              .             .                    .                        .                      .          .          .          .                           .                    .        .                        .         Available                  .                  .                      Gone:Abandoned           .
Available  .          .               Acquired  .                              .             .                    .                        .                      Scheduled  .          .          .                           .                    Damaged  Gone:Purged/Acknowledge  Removing  .                          .                  .                      .                        .
Scheduled  .          .               .         .                              .             .                    .                        .                      .          Available  .          Gone:DeadLettered/Relocate  Gone:Moved/Relocate  .        Gone:Purged/Acknowledge  .         .                          .                  .                      .                        .
Acquired   .          .               .         Gone:Acknowledged/Acknowledge  Available     Available/Redeliver  Available+1+1/Redeliver  Available+1/Redeliver  .          .          Scheduled  Gone:DeadLettered/Relocate  .                    Damaged  .                        Removing  .                          .                  .                      .                        .
Removing   .          .               .         .                              .             .                    .                        .                      Scheduled  .          .          .                           .                    .        .                        .         Gone:Acknowledged/Decided  Available/Decided  Available+1+1/Decided  Available+1+1/Redeliver  Available+1+1/Decided
Moving     .          .               .         .                              .             .                    .                        .                      .          .          .          .                           .                    .        .                        .         .                          .                  .                      .                        .
Damaged    .          .               .         .                              .             .                    .                        .                      .          .          .          .                           .                    .        Gone:Purged/Acknowledge  .         .                          .                  .                      .                        .
Gone       .          .               .         .                              .             .                    .                        .                      .          .          .          .                           .                    .        .                        .         .                          .                  .                      .                        .
";

fn cell(state: State, event: Event) -> String {
    let Ok(Transition { from, to, reason, deliveries, attempts, record }) = transition(state, event) else {
        return ".".into();
    };
    assert_eq!(from, state);
    assert_eq!(reason.is_some(), to == State::Gone, "whoever is gone has a reason, and nobody else");
    let mut text = format!("{to:?}");
    if let Some(reason) = reason {
        write!(text, ":{reason:?}").unwrap();
    }
    match (deliveries, attempts) {
        (0, 0) => {}
        (1, 0) => text.push_str("+1"),
        (1, 1) => text.push_str("+1+1"),
        other => panic!("{state:?} {event:?} adds {other:?}"),
    }
    if record != Record::None {
        write!(text, "/{record:?}").unwrap();
    }
    text
}

/// Fails to compile when a state or event is added, so that it is added here, to `ALL`, and to the table.
fn position(state: State, event: Event) -> (usize, usize) {
    let row = match state {
        State::Staged => 0,
        State::Available => 1,
        State::Scheduled => 2,
        State::Acquired => 3,
        State::Removing => 4,
        State::Moving => 5,
        State::Damaged => 6,
        State::Gone => 7,
    };
    let column = match event {
        Event::Durable => 0,
        Event::Abandon => 1,
        Event::Dispatch => 2,
        Event::Acknowledge => 3,
        Event::ReturnUnseen => 4,
        Event::ReturnModified => 5,
        Event::ReturnSeen => 6,
        Event::ReturnLost => 7,
        Event::Divert => 8,
        Event::Stay => 9,
        Event::Postpone => 10,
        Event::DeadLetter => 11,
        Event::Move => 12,
        Event::Damage => 13,
        Event::Purge => 14,
        Event::Remove => 15,
        Event::Commit => 16,
        Event::CommitUnseen => 17,
        Event::CommitSeen => 18,
        Event::Rollback => 19,
        Event::DecideRollback => 20,
    };
    (row, column)
}

#[test]
fn every_pair_of_state_and_event_is_decided_as_the_table_says() {
    let mut lines = TABLE.trim().lines().map(|l| l.split_whitespace().collect::<Vec<_>>());
    let columns = lines.next().unwrap();
    let rows: Vec<_> = lines.collect();
    assert_eq!((rows.len(), columns.len()), (State::ALL.len(), Event::ALL.len()));
    for (r, state) in State::ALL.into_iter().enumerate() {
        for (c, event) in Event::ALL.into_iter().enumerate() {
            assert_eq!(position(state, event), (r, c), "ALL is in order and complete");
            assert_eq!((rows[r][0], columns[c]), (&*format!("{state:?}"), &*format!("{event:?}")));
            assert_eq!(cell(state, event), rows[r][c + 1], "{state:?} {event:?}");
        }
    }
}

#[test]
fn depth_is_every_state_but_staged_and_gone() {
    for state in State::ALL {
        assert_eq!(state.in_depth(), !matches!(state, State::Staged | State::Gone), "{state:?}");
    }
}

#[test]
fn a_refusal_names_state_and_event() {
    let illegal = transition(State::Gone, Event::Acknowledge).unwrap_err();
    assert_eq!(illegal.to_string(), "an entry in state Gone cannot take the event Acknowledge");
}

/// The page: a graph for people, and the whole table.
fn page() -> String {
    let mut out = String::from(
        "# States of an entry\n\n\
         Generated from `core/queue/src/entry.rs` by the test `the_page_is_what_the_code_does`; `UPDATE_SNAPSHOTS=1` rewrites it.\n\
         What the states mean is said in `core/queue/src/entry.rs`; *Moving* waits for lanes. `Decided`: the record that decides the transaction, or that prepared it, says it.\n\n\
         ```mermaid\nstateDiagram-v2\n",
    );
    for born in [State::birth(true), State::birth(false)] {
        writeln!(out, "    [*] --> {born:?}").unwrap();
    }
    for state in State::ALL {
        for event in Event::ALL {
            let Ok(t) = transition(state, event) else { continue };
            let to = if t.to == State::Gone { "[*]".into() } else { format!("{:?}", t.to) };
            writeln!(out, "    {state:?} --> {to} : {event:?}").unwrap();
        }
    }
    out.push_str(
        "```\n\n| state | event | state after | deliveries | attempts | record |\n|---|---|---|---|---|---|\n",
    );
    for state in State::ALL {
        for event in Event::ALL {
            let Ok(t) = transition(state, event) else { continue };
            let to = match t.reason {
                Some(reason) => format!("{:?} ({})", t.to, word(reason)),
                None => format!("{:?}", t.to),
            };
            let record = if t.record == Record::None { "".into() } else { format!("`{:?}`", t.record) };
            let plus = |n: u32| if n == 0 { String::new() } else { format!("+ {n}") };
            writeln!(
                out,
                "| {state:?} | {event:?} | {to} | {} | {} | {record} |",
                plus(t.deliveries),
                plus(t.attempts)
            )
            .unwrap();
        }
    }
    out.push_str("\nEvery other pair of state and event is illegal, and leaves the entry as it is.\n");
    out
}

fn word(reason: Reason) -> &'static str {
    match reason {
        Reason::Acknowledged => "acknowledged",
        Reason::DeadLettered => "dead-lettered",
        Reason::Purged => "purged",
        Reason::Moved => "moved",
        Reason::Abandoned => "abandoned",
    }
}

#[test]
fn the_page_is_what_the_code_does() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/states/entry.md");
    let page = page();
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &page).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == page, "docs/states/entry.md is not what the code does; UPDATE_SNAPSHOTS=1 rewrites it");
}
