//! The state machine of a branch, cell by cell, and its page in `docs/states/branch.md`, which is generated from the code.
#![expect(clippy::disallowed_methods, reason = "the snapshot is a file of the repository")]

use packhorse_txn::state::{Deed, Facts, Mine, State, Step, Verb, transition};
use packhorse_txn::{Cause, Code, Completed, Purpose};
use std::fmt::Write as _;
use std::path::Path;

/// What each verb (column) does in each case (row). `OK>A:b=C`: the answer, the state after if it is another, what is done, what is
/// remembered; `-`: the answer comes with the flush; `wait`: the question waits for the flush that is under way. Done: b begin, a
/// associate, d disassociate, s suspend, u undo, gp gc gd gather to prepare, commit, decide, w write. Remembered: C committed, R rolled
/// back. Written by hand from `spec/transactions.md`; not derived from the code.
const TABLE: &str = "
case              Start   Join        Resume      End             Suspend         Fail            Prepare           Commit   CommitOnePhase     Rollback   Forget  OperatorCommit OperatorRollback OperatorForget Force  Lose      Timeout
N                 OK>A:b  NOTA        NOTA        NOTA            NOTA            NOTA            NOTA              NOTA     NOTA               NOTA       NOTA    NOTA           NOTA             NOTA           NOTA   OK        OK
N,committed       ->st:b  NOTA        NOTA        NOTA            NOTA            NOTA            NOTA              OK       OK                 NOTA       NOTA    NOTA           NOTA             NOTA           NOTA   OK        OK
N,nothing-done    OK>A:b  NOTA        NOTA        NOTA            NOTA            NOTA            NOTA              OK       OK                 NOTA       NOTA    NOTA           NOTA             NOTA           NOTA   OK        OK
N,lost            OK>A:b  NOTA        NOTA        NOTA            NOTA            NOTA            RBCOMMFAIL        NOTA     RBCOMMFAIL         OK         NOTA    NOTA           NOTA             NOTA           NOTA   OK        OK
N,rolled-back     ->st:b  NOTA        NOTA        NOTA            NOTA            NOTA            RBROLLBACK        NOTA     RBROLLBACK         OK         NOTA    NOTA           NOTA             NOTA           NOTA   OK        OK
A                 DUPID   OK:a        PROTO       OK>I:d          OK>S:s          OK>RO:u         PROTO             PROTO    PROTO              PROTO      PROTO   PROTO          PROTO            PROTO          NOTA   OK>N:u=R  OK>RO:u
A,stranger        DUPID   OK:a        PROTO       PROTO           PROTO           PROTO           PROTO             PROTO    PROTO              PROTO      PROTO   PROTO          PROTO            PROTO          NOTA   OK>RO:u   OK>RO:u
A,two             DUPID   OK:a        PROTO       OK:d            OK:s            OK>RO:u         PROTO             PROTO    PROTO              PROTO      PROTO   PROTO          PROTO            PROTO          NOTA   OK>RO:u   OK>RO:u
A,other-rests     DUPID   OK:a        PROTO       OK>S:d          OK>S:s          OK>RO:u         PROTO             PROTO    PROTO              PROTO      PROTO   PROTO          PROTO            PROTO          NOTA   OK>RO:u   OK>RO:u
A,mine-rests      DUPID   OK:a        PROTO       OK:d            PROTO           OK>RO:u         PROTO             PROTO    PROTO              PROTO      PROTO   PROTO          PROTO            PROTO          NOTA   OK>RO:u   OK>RO:u
S                 DUPID   PROTO       OK>A:a      OK>I:d          PROTO           OK>RO:u         PROTO             PROTO    PROTO              PROTO      PROTO   PROTO          PROTO            PROTO          NOTA   OK>N:u=R  OK>RO:u
S,two             DUPID   PROTO       OK>A:a      OK:d            PROTO           OK>RO:u         PROTO             PROTO    PROTO              PROTO      PROTO   PROTO          PROTO            PROTO          NOTA   OK>RO:u   OK>RO:u
I                 DUPID   OK>A:a      PROTO       PROTO           PROTO           PROTO           ->pr:gp           PROTO    ->co:gc            OK>N:u=R   PROTO   PROTO          PROTO            PROTO          NOTA   OK>N:u=R  OK>RO:u
I,no-work         DUPID   OK>A:a      PROTO       PROTO           PROTO           PROTO           RDONLY>N          PROTO    OK>N=C             OK>N:u=R   PROTO   PROTO          PROTO            PROTO          NOTA   OK>N:u=R  OK>RO:u
I,stale           DUPID   OK>A:a      PROTO       PROTO           PROTO           PROTO           RBINTEGRITY>N:u=R PROTO    RBINTEGRITY>N:u=R  OK>N:u=R   PROTO   PROTO          PROTO            PROTO          NOTA   OK>N:u=R  OK>RO:u
RO,timeout        DUPID   RBTIMEOUT   RBTIMEOUT   RBTIMEOUT:d     RBTIMEOUT:d     RBTIMEOUT:d     RBTIMEOUT>N:u=R   PROTO    RBTIMEOUT>N:u=R    OK>N:u=R   PROTO   PROTO          PROTO            PROTO          NOTA   OK>N:u=R  OK
RO,failed-shared  DUPID   RBROLLBACK  RBROLLBACK  RBROLLBACK:d    RBROLLBACK:d    RBROLLBACK:d    RBROLLBACK>N:u=R  PROTO    RBROLLBACK>N:u=R   OK>N:u=R   PROTO   PROTO          PROTO            PROTO          NOTA   OK        OK
P                 DUPID   PROTO       PROTO       PROTO           PROTO           PROTO           OK                ->de:gd  PROTO              ->de:w     PROTO   ->de:gd        ->de:w           PROTO          NOTA   OK        OK
P,disk-full       DUPID   PROTO       PROTO       PROTO           PROTO           PROTO           OK                RETRY    PROTO              ->de:w     PROTO   ->de:gd        ->de:w           PROTO          NOTA   OK        OK
P,queue-of-it     DUPID   PROTO       PROTO       PROTO           PROTO           PROTO           OK                ->de:gd  PROTO              ->de:w     PROTO   ->de:gd        ->de:w           PROTO          ->de:w OK        OK
HC                DUPID   PROTO       PROTO       PROTO           PROTO           PROTO           PROTO             HEURCOM  PROTO              HEURCOM    ->fo:w  HEURCOM        HEURCOM          ->fo:w         NOTA   OK        OK
HR                DUPID   PROTO       PROTO       PROTO           PROTO           PROTO           PROTO             HEURRB   PROTO              HEURRB     ->fo:w  HEURRB         HEURRB           ->fo:w         NOTA   OK        OK
HM                DUPID   PROTO       PROTO       PROTO           PROTO           PROTO           PROTO             HEURMIX  PROTO              HEURMIX    ->fo:w  HEURMIX        HEURMIX          ->fo:w         NOTA   OK        OK
st                wait    wait        wait        wait            wait            wait            wait              wait     wait               wait       wait    wait           wait             wait           wait   wait      OK
pr                wait    wait        wait        wait            wait            wait            wait              wait     wait               wait       wait    wait           wait             wait           wait   wait      OK
co                wait    wait        wait        wait            wait            wait            wait              wait     wait               wait       wait    wait           wait             wait           wait   wait      OK
de                wait    wait        wait        wait            wait            wait            wait              wait     wait               wait       wait    wait           wait             wait           wait   wait      OK
fo                wait    wait        wait        wait            wait            wait            wait              wait     wait               wait       wait    wait           wait             wait           wait   wait      OK
";

/// What the cases stand for.
fn cases() -> Vec<(&'static str, State, Facts)> {
    use State as S;
    let none = Facts::default();
    let memory = |outcome, durable| Facts { memory: Some(outcome), memory_durable: durable, ..none };
    let lost = Completed::RolledBack(Cause::Lost);
    let asked = Completed::RolledBack(Cause::Asked);
    let work = Facts { work: true, ..none };
    let active = Facts { mine: Mine::Active, ..work };
    let rests = Facts { mine: Mine::Suspended, ..work };
    vec![
        ("N", S::None, none),
        ("N,committed", S::None, memory(Completed::Committed, true)),
        ("N,nothing-done", S::None, memory(Completed::Committed, false)),
        ("N,lost", S::None, memory(lost, false)),
        ("N,rolled-back", S::None, memory(asked, true)),
        ("A", S::Associated, active),
        ("A,stranger", S::Associated, Facts { others_active: true, ..work }),
        ("A,two", S::Associated, Facts { others_active: true, ..active }),
        ("A,other-rests", S::Associated, Facts { others_suspended: true, ..active }),
        ("A,mine-rests", S::Associated, Facts { others_active: true, ..rests }),
        ("S", S::Suspended, rests),
        ("S,two", S::Suspended, Facts { others_suspended: true, ..rests }),
        ("I", S::Idle, work),
        ("I,no-work", S::Idle, none),
        ("I,stale", S::Idle, Facts { cause: Some(Cause::Stale), ..work }),
        ("RO,timeout", S::RollbackOnly, Facts { mine: Mine::Active, cause: Some(Cause::Timeout), ..none }),
        ("RO,failed-shared", S::RollbackOnly, Facts { others_active: true, cause: Some(Cause::WorkFailed), ..none }),
        ("P", S::Prepared, work),
        ("P,disk-full", S::Prepared, Facts { full: true, ..work }),
        ("P,queue-of-it", S::Prepared, Facts { has_part: true, ..work }),
        ("HC", S::HeuristicCommitted, work),
        ("HR", S::HeuristicRolledBack, work),
        ("HM", S::HeuristicMixed, work),
        ("st", S::Starting, active),
        ("pr", S::Preparing, work),
        ("co", S::Committing, work),
        ("de", S::Deciding, work),
        ("fo", S::Forgetting, work),
    ]
}

fn short(state: State) -> &'static str {
    match state {
        State::None => "N",
        State::Starting => "st",
        State::Associated => "A",
        State::Suspended => "S",
        State::Idle => "I",
        State::RollbackOnly => "RO",
        State::Preparing => "pr",
        State::Committing => "co",
        State::Prepared => "P",
        State::Deciding => "de",
        State::HeuristicCommitted => "HC",
        State::HeuristicRolledBack => "HR",
        State::HeuristicMixed => "HM",
        State::Forgetting => "fo",
    }
}

fn code(code: Code) -> &'static str {
    code.name().trim_start_matches("XA_").trim_start_matches("XAER_")
}

fn cell(state: State, verb: Verb, facts: &Facts) -> String {
    let Some(Step { code: answer, to, deed, remember }) = transition(state, verb, facts) else {
        return "wait".into();
    };
    let mut text: String = answer.map_or("-", code).into();
    if to != state {
        write!(text, ">{}", short(to)).unwrap();
    }
    text.push_str(match deed {
        Deed::Nothing => "",
        Deed::Begin => ":b",
        Deed::Associate => ":a",
        Deed::Disassociate => ":d",
        Deed::Suspend => ":s",
        Deed::Undo => ":u",
        Deed::Gather(Purpose::Prepare) => ":gp",
        Deed::Gather(Purpose::Commit) => ":gc",
        Deed::Gather(Purpose::Decide) => ":gd",
        Deed::Write => ":w",
    });
    text.push_str(match remember {
        None => "",
        Some(Completed::Committed) => "=C",
        Some(Completed::RolledBack(_)) => "=R",
    });
    text
}

/// Fails to compile when a state or verb is added, so that it is added here, to `ALL`, and to the table.
fn position(verb: Verb) -> usize {
    match verb {
        Verb::Start => 0,
        Verb::Join => 1,
        Verb::Resume => 2,
        Verb::End => 3,
        Verb::Suspend => 4,
        Verb::Fail => 5,
        Verb::Prepare => 6,
        Verb::Commit => 7,
        Verb::CommitOnePhase => 8,
        Verb::Rollback => 9,
        Verb::Forget => 10,
        Verb::OperatorCommit => 11,
        Verb::OperatorRollback => 12,
        Verb::OperatorForget => 13,
        Verb::Force => 14,
        Verb::Lose => 15,
        Verb::Timeout => 16,
    }
}

#[test]
fn every_case_of_state_and_verb_is_decided_as_the_table_says() {
    let mut lines = TABLE.trim().lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let columns = lines.next().unwrap();
    let rows: Vec<_> = lines.collect();
    let cases = cases();
    assert_eq!((rows.len(), columns.len()), (cases.len(), Verb::ALL.len() + 1));
    for (row, (name, state, facts)) in rows.iter().zip(&cases) {
        assert_eq!((row[0], row.len()), (*name, columns.len()));
        assert_eq!(name.split(',').next(), Some(short(*state)), "a case is named after its state");
        for (at, verb) in Verb::ALL.into_iter().enumerate() {
            assert_eq!((position(verb), columns[at + 1]), (at, &*format!("{verb:?}")));
            assert_eq!(cell(*state, verb, facts), row[at + 1], "{name} {verb:?}");
        }
    }
    for state in State::ALL {
        assert!(cases.iter().any(|(_, of, _)| *of == state), "{state:?} has a row");
    }
}

#[test]
fn codes_are_those_of_the_standard() {
    let numbers: Vec<i32> = Code::ALL.into_iter().map(Code::wire).collect();
    let mut expected = vec![0, 3, 4, 5, 6, 7, 8, 9];
    expected.extend(100..=107);
    expected.extend((-9..=-2).rev());
    assert_eq!(numbers, expected);
    assert_eq!(Code::RolledBackCommunication.to_string(), "XA_RBCOMMFAIL");
    assert_eq!(Code::Outside.to_string(), "XAER_OUTSIDE");
}

/// The page: a graph for people, and the whole table.
fn page() -> String {
    let mut out = String::from(
        "# States of an XA branch\n\n\
         Generated from `core/txn/src/state.rs` by the test `the_page_is_what_the_code_does`; `UPDATE_SNAPSHOTS=1` rewrites it.\n\
         What the states mean is said in `core/txn/src/state.rs`. States *on their way* wait for a flush; what is asked meanwhile waits\n\
         with them. What the flush leads to is drawn with *durable*.\n\n```mermaid\nstateDiagram-v2\n",
    );
    let name = |state: State| if state == State::None { "[*]".to_owned() } else { format!("{state:?}") };
    let mut arrows = Vec::new();
    for (_, state, facts) in cases() {
        for verb in Verb::ALL {
            let Some(step) = transition(state, verb, &facts).filter(|step| step.to != state) else { continue };
            let arrow = format!("    {} --> {} : {verb:?}\n", name(state), name(step.to));
            if !arrows.contains(&arrow) {
                arrows.push(arrow);
            }
        }
    }
    out.extend(arrows);
    for (from, to) in [
        ("Starting", "Associated"),
        ("Preparing", "Prepared"),
        ("Committing", "[*]"),
        ("Deciding", "[*]"),
        ("Deciding", "HeuristicCommitted"),
        ("Deciding", "HeuristicRolledBack"),
        ("Deciding", "HeuristicMixed"),
        ("Deciding", "Prepared"),
        ("Forgetting", "[*]"),
    ] {
        writeln!(out, "    {from} --> {to} : durable").unwrap();
    }
    out.push_str("```\n\nOne line for each case that makes a difference, the answer first; `later`: when the record is durable.\n");
    for (at, verb) in Verb::ALL.into_iter().enumerate() {
        write!(out, "\n## {verb:?}\n\n| state | case | answer | state after | done |\n|---|---|---|---|---|\n")
            .unwrap();
        debug_assert_eq!(position(verb), at);
        for (case, state, facts) in cases() {
            let case = case.split_once(',').map_or("", |(_, case)| case);
            let Some(Step { code, to, deed, .. }) = transition(state, verb, &facts) else {
                writeln!(out, "| {state:?} | {case} | waits | | |").unwrap();
                continue;
            };
            let code = code.map_or("later", Code::name);
            let to = if to == state { String::new() } else { format!("{to:?}") };
            let deed = match deed {
                Deed::Nothing => "",
                Deed::Begin => "begins",
                Deed::Associate => "associates",
                Deed::Disassociate => "disassociates",
                Deed::Suspend => "suspends",
                Deed::Undo => "undoes",
                Deed::Gather(_) => "gathers, writes",
                Deed::Write => "writes",
            };
            writeln!(out, "| {state:?} | {case} | {code} | {to} | {deed} |").unwrap();
        }
    }
    out
}

#[test]
fn the_page_is_what_the_code_does() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/states/branch.md");
    let page = page();
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == page, "docs/states/branch.md is not what the code does; UPDATE_SNAPSHOTS=1 rewrites it");
}
