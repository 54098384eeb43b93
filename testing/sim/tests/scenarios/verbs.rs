//! What a coordinator answers to the verbs of XA, and what fails inside of branches: FS-34 to FS-40.

use crate::in_doubt::{finds, prepared, worked};
use crate::{Q, deaths, decide, filled, numbers, restarted, worlds};
use packhorse_client_core::Verdict;
use packhorse_client_core::transaction::flags;
use packhorse_sim::{Branch, Control, Death, Script, Shape, Tx};

const PROTO: Option<i32> = Some(-6);

#[test]
fn fs_34_one_branch_acknowledges_what_another_one_has() {
    deaths(3_400, |script, death| {
        let doubt = prepared(script);
        let (who, m0) = (script.client_of_control(doubt.app), doubt.got[0].delivery);
        // The same delivery, said to be acknowledged in another branch and outside of any.
        let y = script.branch();
        let tx = script.begin(doubt.app, &y);
        script.claim_in(&tx, who, m0);
        script.claim(who, m0, true);
        script.claim(who, m0, false);
        script.rest();
        assert!(script.is_there(who), "outside of a branch it is ignored");
        assert_eq!(script.end(doubt.app, &y, flags::SUCCESS), Some(0));
        assert_eq!(script.prepare(doubt.app, &y), Some(103), "XA_RBINTEGRITY");
        assert_eq!(script.counts(Q), [2, 2, 2, 4], "X is as it was");
        script.kill(death);
        restarted(script);
        let manager = finds(script, &[&doubt.x]);
        assert_eq!(script.counts(Q), [2, 2, 2, 4]);
        assert_eq!(script.commit(manager, &doubt.x), Some(0));
        assert_eq!(doubt.drain(script), ["m2", "m3", "n0", "n1"]);
    });
}

#[test]
fn fs_35_an_error_inside_of_a_branch_spoils_it_as_a_whole() {
    deaths(3_500, |script, death| {
        let who = script.client();
        let control = script.control(who);
        let sender = script.producer(who, Q);
        let x = script.branch();
        let tx = script.begin(control, &x);
        script.send_in(&tx, sender, 1);
        script.spoil(&tx, sender);
        script.send_in(&tx, sender, 1);
        assert_eq!(script.end(control, &x, flags::SUCCESS), Some(0));
        assert_eq!(script.prepare(control, &x), Some(104), "XA_RBOTHER");
        assert_eq!(script.counts(Q), [0; 4]);
        script.kill(death);
        restarted(script);
        let manager = finds(script, &[]);
        assert_eq!(script.counts(Q), [0; 4]);
        assert_eq!(script.commit(manager, &x), Some(-4));
    });
}

#[test]
fn fs_36_a_branch_that_ended_in_failure_cannot_be_prepared() {
    worlds(3_600, 3, |script| {
        filled(script, Q, 2);
        let who = script.client();
        let control = script.control(who);
        let sender = script.producer(who, Q);
        let receiver = script.consumer(who, Q, 1);
        let got = script.receive(receiver, 0, 1);
        let x = script.branch();
        let tx = script.begin(control, &x);
        script.accept_in(&tx, receiver, got[0].delivery);
        script.send_in(&tx, sender, 1);
        assert_eq!(script.end(control, &x, flags::FAIL), Some(0));
        script.rest();
        assert_eq!(script.counts(Q), [2, 0, 0, 2], "it is undone at once");
        assert_eq!(script.prepare(control, &x), Some(100), "XA_RBROLLBACK");
        assert_eq!(script.commit(control, &x), Some(-4));
        script.close(who);
        let left = script.drain(Q);
        assert_eq!(numbers(&left), [0, 1]);
        assert_eq!(left.iter().map(|got| got.deliveries).collect::<Vec<_>>(), [1, 0]);
    });
}

#[test]
fn fs_37_a_branch_that_runs_into_its_timeout() {
    worlds(3_700, 3, |script| {
        filled(script, Q, 1);
        let who = script.client();
        let control = script.control(who);
        let receiver = script.consumer(who, Q, 1);
        let got = script.receive(receiver, 0, 1);
        let k = script.client();
        let theirs = script.consumer(k, Q, 1);
        let x = script.branch();
        assert_eq!(script.start_for(control, &x, 1_000), Some(0));
        let tx = script.tx(control);
        script.accept_in(&tx, receiver, got[0].delivery);
        script.wait(950_000);
        assert_eq!(script.got(theirs), []);
        script.wait(60_000);
        let again = script.got(theirs).to_vec();
        assert_eq!((numbers(&again), again[0].deliveries), (vec![0], 1));
        assert_eq!(script.end(control, &x, flags::SUCCESS), Some(106), "XA_RBTIMEOUT");
        assert_eq!(script.prepare(control, &x), Some(106));
        assert_eq!(script.prepare(control, &x), Some(106), "remembered for a while");
        decide(script, theirs, &again, Verdict::Accept);
        script.rest();
        assert_eq!(script.counts(Q), [0; 4]);
        assert_eq!(script.recover(control), []);
    });
}

#[test]
fn fs_38_prepared_without_work_and_with_volatile_work_only() {
    deaths(3_800, |script, death| {
        let who = script.client();
        let control = script.control(who);
        let sender = script.producer(who, Q);
        let (x, y) = (script.branch(), script.branch());
        script.begin(control, &x);
        assert_eq!(script.end(control, &x, flags::SUCCESS), Some(0));
        assert_eq!(script.prepare(control, &x), Some(3), "XA_RDONLY");
        assert_eq!(script.recover(control), []);
        let tx = script.begin(control, &y);
        for _ in 0..2 {
            script.send_shaped_in(&tx, sender, Shape { persistent: false, ..Shape::default() });
        }
        assert_eq!(script.end(control, &y, flags::SUCCESS), Some(0));
        assert_eq!(script.prepare(control, &y), Some(0));
        script.kill(death);
        restarted(script);
        let manager = finds(script, &[&y]);
        assert_eq!(script.commit(manager, &y), Some(0));
        assert_eq!(script.counts(Q), [0; 4], "what was not persistent is gone");
        assert!(script.notes().any(|note| note.contains("without 2 of its operations")), "and counted in the log");
    });
}

/// What each verb (column) answers in each case (row), after `spec/transactions.md`; written by hand. It is asked by a stranger, or by
/// the one who works in the branch (`mine`). Queue `gone` was deleted by force under a branch that is mixed.
const CELLS: &str = "
                 Start  Join       Resume     End        Suspend    Fail       Prepare     Commit  CommitOnePhase Rollback Forget
none             OK     NOTA       NOTA       NOTA       NOTA       NOTA       NOTA        NOTA    NOTA           NOTA     NOTA
associated       DUPID  OK         PROTO      PROTO      PROTO      PROTO      PROTO       PROTO   PROTO          PROTO    PROTO
associated,mine  PROTO  PROTO      PROTO      OK         OK         OK         PROTO       PROTO   PROTO          PROTO    PROTO
suspended        DUPID  PROTO      OK         OK         PROTO      OK         PROTO       PROTO   PROTO          PROTO    PROTO
suspended,mine   DUPID  PROTO      OK         OK         PROTO      OK         PROTO       PROTO   PROTO          PROTO    PROTO
idle             DUPID  OK         PROTO      PROTO      PROTO      PROTO      OK          PROTO   OK             OK       PROTO
idle,no-work     DUPID  OK         PROTO      PROTO      PROTO      PROTO      RDONLY      PROTO   OK             OK       PROTO
idle,stale       DUPID  OK         PROTO      PROTO      PROTO      PROTO      RBINTEGRITY PROTO   RBINTEGRITY    OK       PROTO
rollback-only    DUPID  RBROLLBACK RBROLLBACK RBROLLBACK RBROLLBACK RBROLLBACK RBROLLBACK  PROTO   RBROLLBACK     OK       PROTO
timed-out        DUPID  RBTIMEOUT  RBTIMEOUT  RBTIMEOUT  RBTIMEOUT  RBTIMEOUT  RBTIMEOUT   PROTO   RBTIMEOUT      OK       PROTO
prepared         DUPID  PROTO      PROTO      PROTO      PROTO      PROTO      OK          OK      PROTO          OK       PROTO
committed        OK     NOTA       NOTA       NOTA       NOTA       NOTA       NOTA        OK      OK             NOTA     NOTA
rolled-back      OK     NOTA       NOTA       NOTA       NOTA       NOTA       RBROLLBACK  NOTA    RBROLLBACK     OK       NOTA
lost             OK     NOTA       NOTA       NOTA       NOTA       NOTA       RBCOMMFAIL  NOTA    RBCOMMFAIL     OK       NOTA
h-committed      DUPID  PROTO      PROTO      PROTO      PROTO      PROTO      PROTO       HEURCOM PROTO          HEURCOM  OK
h-rolled-back    DUPID  PROTO      PROTO      PROTO      PROTO      PROTO      PROTO       HEURRB  PROTO          HEURRB   OK
h-mixed          DUPID  PROTO      PROTO      PROTO      PROTO      PROTO      PROTO       HEURMIX PROTO          HEURMIX  OK
";

/// Cases that are the same after the end of a process.
const SURVIVES: [&str; 5] = ["prepared", "committed", "h-committed", "h-rolled-back", "h-mixed"];

fn code(name: &str) -> i32 {
    match name {
        "OK" => 0,
        "RDONLY" => 3,
        "HEURMIX" => 5,
        "HEURRB" => 6,
        "HEURCOM" => 7,
        "RBROLLBACK" => 100,
        "RBCOMMFAIL" => 101,
        "RBINTEGRITY" => 103,
        "RBTIMEOUT" => 106,
        "NOTA" => -4,
        "PROTO" => -6,
        "DUPID" => -8,
        other => panic!("the table has an answer `{other}`, and nothing here knows it"),
    }
}

fn ask(script: &mut Script, control: Control, branch: &Branch, verb: &str) -> Option<i32> {
    match verb {
        // The name may have been used: the history has each name once.
        "Start" => {
            let again = script.again(branch);
            script.start(control, &again, flags::NONE)
        }
        "Join" => script.start(control, branch, flags::JOIN),
        "Resume" => script.start(control, branch, flags::RESUME),
        "End" => script.end(control, branch, flags::SUCCESS),
        "Suspend" => script.end(control, branch, flags::SUSPEND),
        "Fail" => script.end(control, branch, flags::FAIL),
        "Prepare" => script.prepare(control, branch),
        "Commit" => script.commit(control, branch),
        "CommitOnePhase" => script.commit_one_phase(control, branch),
        "Rollback" => script.rollback(control, branch),
        "Forget" => script.forget(control, branch),
        other => panic!("the table has a verb `{other}`, and nothing here asks it"),
    }
}

/// Work in a branch: a message to each of these queues.
fn work(script: &mut Script, control: Control, tx: &Tx, queues: &[&str]) {
    let who = script.client_of_control(control);
    for queue in queues {
        let sender = script.producer(who, queue);
        script.send_in(tx, sender, 1);
    }
    script.rest();
}

/// Brings a branch into a state, by verbs of a new client.
fn bring(script: &mut Script, case: &str) -> (Control, Branch) {
    let (control, x) = (script.manager(), script.branch());
    let who = script.client_of_control(control);
    let verbs: &[&str] = match case {
        "none" => return (control, x),
        "associated" | "associated,mine" | "lost" | "timed-out" => &[],
        "suspended" | "suspended,mine" => &["Suspend"],
        "idle" | "idle,no-work" | "idle,stale" => &["End"],
        "rollback-only" => &["Fail"],
        "committed" => &["End", "Prepare", "Commit"],
        "rolled-back" => &["End", "Prepare", "Rollback"],
        "prepared" | "h-committed" | "h-rolled-back" | "h-mixed" => &["End", "Prepare"],
        other => panic!("the table has a case `{other}`, and nothing here brings a branch there"),
    };
    assert_eq!(script.start_for(control, &x, if case == "timed-out" { 1 } else { 0 }), Some(0));
    let tx = script.tx(control);
    match case {
        "timed-out" => script.wait(10_000),
        "idle,no-work" => {}
        "h-mixed" => work(script, control, &tx, &[Q, "gone"]),
        _ => work(script, control, &tx, &[Q]),
    }
    if case == "idle,stale" {
        script.claim_in(&tx, who, 4_711);
        script.rest();
    }
    for verb in verbs {
        assert_eq!(ask(script, control, &x, verb), Some(0), "{case}: {verb}");
    }
    match case {
        "lost" => {
            script.close(who);
            script.until("it leaves", |s| !s.is_there(who));
            script.rest();
        }
        "h-committed" | "h-rolled-back" => {
            assert_eq!(script.decide_by_operator(&x, case == "h-committed"), Some(true));
        }
        "h-mixed" => {
            script.close(who);
            script.until("it leaves", |s| !s.is_there(who));
            assert_eq!(script.delete("gone", true), Ok(0));
            let manager = script.manager();
            assert_eq!(script.commit(manager, &x), Some(5), "XA_HEURMIX");
        }
        _ => {}
    }
    (control, x)
}

/// Whatever is left of a branch goes.
fn clear(script: &mut Script, controls: [Control; 2], branch: &Branch) {
    for control in controls {
        if script.is_there(script.client_of_control(control)) {
            script.end(control, branch, flags::SUCCESS);
        }
    }
    let stranger = controls[1];
    script.rollback(stranger, branch);
    script.forget(stranger, branch);
    assert_eq!(script.recover(stranger), []);
    for control in controls {
        script.close(script.client_of_control(control));
    }
    script.rest();
}

#[test]
fn fs_39_each_verb_in_each_state() {
    worlds(3_900, 1, |script| {
        let mut lines = CELLS.trim_start_matches('\n').lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let verbs = lines.next().expect("the verbs");
        let mut cells = 0;
        for row in lines {
            assert_eq!(row.len(), 12, "{row:?}");
            for (verb, expected) in verbs.iter().zip(&row[1..]) {
                for death in [None, Some(Death::Kill)].into_iter().take(1 + usize::from(SURVIVES.contains(&row[0]))) {
                    let (mut control, x) = bring(script, row[0]);
                    if let Some(death) = death {
                        script.kill(death);
                        restarted(script);
                        control = script.manager();
                    }
                    let stranger = script.manager();
                    let asks = if row[0].ends_with(",mine") { control } else { stranger };
                    // Only what is prepared, or decided by an operator, is listed; the log says what that is.
                    script.recover(stranger);
                    let answer = ask(script, asks, &x, verb);
                    assert_eq!(answer, Some(code(expected)), "{} {verb} after a death: {death:?}", row[0]);
                    script.recover(stranger);
                    // A name that is used again is another branch, of which the history knows nothing.
                    let left = if (*verb, *expected) == ("Start", "OK") { script.again(&x) } else { x };
                    clear(script, [control, stranger], &left);
                    cells += 1;
                }
            }
        }
        assert_eq!(cells, (17 + 5) * 11);
    });
}

#[test]
fn fs_39_names_differ_by_their_format_and_have_bounds() {
    worlds(3_910, 2, |script| {
        let (one, two) = (script.manager(), script.manager());
        let names = [script.unrecorded(1, b"X", b"b"), script.unrecorded(2, b"X", b"b")];
        assert_eq!(script.start(one, &names[0], flags::NONE), Some(0));
        assert_eq!(script.start(two, &names[1], flags::NONE), Some(0), "another branch");
        for (control, name) in [(one, &names[0]), (two, &names[1])] {
            assert_eq!(script.end(control, name, flags::SUCCESS), Some(0));
        }
        assert_eq!(script.rollback(one, &names[0]), Some(0));
        assert_eq!(script.rollback(one, &names[1]), Some(0), "it is still there");
        let longest = script.unrecorded(1, &[7; 64], &[7; 64]);
        assert_eq!(script.rollback(one, &longest), Some(-4), "XAER_NOTA");
        for (format, global, qualifier) in [(1, &[7; 65][..], &[7; 64][..]), (1, &[7; 64], &[7; 65]), (-1, b"X", b"b")]
        {
            let name = script.unrecorded(format, global, qualifier);
            assert_eq!(script.start(one, &name, flags::NONE), Some(-5), "XAER_INVAL");
            assert_eq!(script.rollback(one, &name), Some(-5));
        }
        for control in [one, two] {
            script.close(script.client_of_control(control));
        }
        script.rest();
    });
}

#[test]
fn fs_40_suspended_and_resumed_here_and_from_elsewhere() {
    for elsewhere in [false, true] {
        worlds(4_000 + 10 * u64::from(elsewhere), 2, |script| {
            filled(script, Q, 2);
            let who = script.client();
            let control = script.control(who);
            let sender = script.producer(who, Q);
            let receiver = script.consumer(who, Q, 1);
            let got = script.receive(receiver, 0, 1);
            let x = script.branch();
            let first = script.begin(control, &x);
            script.accept_in(&first, receiver, got[0].delivery);
            script.rest();
            assert_eq!(script.end(control, &x, flags::SUSPEND), Some(0));
            // What comes under the old id is in nothing.
            script.send_in(&first, sender, 1);
            script.rest();
            assert!(script.confirmed(sender).is_empty());
            let other = script.manager();
            for asks in [control, other] {
                assert_eq!(script.rollback(asks, &x), PROTO, "it is suspended, and still there");
                assert_eq!(script.prepare(asks, &x), PROTO);
            }
            let resumes = if elsewhere { other } else { control };
            assert_eq!(script.start(resumes, &x, flags::RESUME), Some(0));
            let tx = script.tx(resumes);
            let theirs = script.producer(script.client_of_control(resumes), Q);
            script.send_in(&tx, theirs, 1);
            script.rest();
            assert_eq!(script.end(resumes, &x, flags::SUCCESS), Some(0));
            assert_eq!(script.counts(Q)[0], 1);
            assert_eq!(script.rollback(control, &x), Some(0));
            script.rest();
            assert_eq!(script.counts(Q)[3], 2);
            script.close(who);
            script.rest();
            assert_eq!(script.counts(Q), [2, 0, 0, 2], "all of it is undone");
        });
    }
}

#[test]
fn fs_40_what_is_suspended_goes_with_its_session_and_with_its_connection() {
    let ends: [fn(&mut Script, Control); 4] = [
        |script, control| script.end_session(script.client_of_control(control)),
        |script, control| script.close(script.client_of_control(control)),
        |script, control| script.kill_client(script.client_of_control(control)),
        |script, control| script.cut(script.client_of_control(control)),
    ];
    for (number, end) in ends.into_iter().enumerate() {
        worlds(4_020 + number as u64, 1, |script| {
            let doubt = worked(script);
            assert_eq!(script.start(doubt.app, &doubt.x, flags::JOIN), Some(0));
            assert_eq!(script.end(doubt.app, &doubt.x, flags::SUSPEND), Some(0));
            end(script, doubt.app);
            script.until("it is rolled back", |s| s.counts(Q)[0] == 4);
            let other = script.manager();
            assert_eq!(script.prepare(other, &doubt.x), Some(101), "XA_RBCOMMFAIL");
            let again = script.again(&doubt.x);
            assert_eq!(script.start(other, &again, flags::NONE), Some(0), "the name is not stuck");
            assert_eq!(script.end(other, &again, flags::SUCCESS), Some(0));
            assert_eq!(script.rollback(other, &again), Some(0));
            assert_eq!(doubt.drain(script), ["m0", "m1", "m2", "m3"]);
        });
    }
}
