//! Branches that are in doubt when a process ends, or a connection: FS-23 to FS-33.

use crate::{Q, back, deaths, decide, is_kept, places, restarted, worlds};
use packhorse_client_core::Verdict;
use packhorse_client_core::transaction::flags;
use packhorse_journal::sim::When;
use packhorse_sim::{BatchKind, Branch, Control, Death, Got, Script};

/// Q holds m0 to m3. Branch X has received m0 and m1 and acknowledged them, and has sent n0 and n1.
pub(crate) struct Doubt {
    pub(crate) x: Branch,
    /// Its application's.
    pub(crate) app: Control,
    /// What the application received.
    pub(crate) got: Vec<Got>,
    m: u32,
    n: u32,
}

impl Doubt {
    pub(crate) fn name(&self, producer: u32, number: u64) -> String {
        let letter = match producer {
            of if of == self.m => 'm',
            of if of == self.n => 'n',
            _ => '?',
        };
        format!("{letter}{number}")
    }

    pub(crate) fn names(&self, got: &[Got]) -> Vec<String> {
        got.iter().map(|got| self.name(got.producer, got.number)).collect()
    }

    pub(crate) fn browse(&self, script: &mut Script) -> Vec<String> {
        script.browse(Q).into_iter().map(|(producer, number)| self.name(producer, number)).collect()
    }

    /// Everything that is in the queue.
    pub(crate) fn drain(&self, script: &mut Script) -> Vec<String> {
        let got = script.drain(Q);
        assert!(got.iter().all(|got| got.whole), "{got:?}");
        self.names(&got)
    }
}

/// The work in X has ended.
pub(crate) fn worked(script: &mut Script) -> Doubt {
    let writer = script.client();
    let sender = script.producer(writer, Q);
    script.send(sender, 4);
    script.rest();
    let m = script.number_of(sender);
    script.close(writer);
    let who = script.client();
    let app = script.control(who);
    let sender = script.producer(who, Q);
    let receiver = script.consumer(who, Q, 2);
    let got = script.receive(receiver, 0, 2);
    let n = script.number_of(sender);
    let x = script.branch();
    let tx = script.begin(app, &x);
    for one in &got {
        script.accept_in(&tx, receiver, one.delivery);
    }
    script.send_in(&tx, sender, 2);
    assert_eq!(script.end(app, &x, flags::SUCCESS), Some(0));
    let doubt = Doubt { x, app, got, m, n };
    assert_eq!(doubt.names(&doubt.got), ["m0", "m1"]);
    doubt
}

/// X is prepared.
pub(crate) fn prepared(script: &mut Script) -> Doubt {
    let doubt = worked(script);
    assert_eq!(script.prepare(doubt.app, &doubt.x), Some(0));
    doubt
}

/// A manager that comes after a restart finds these in doubt, and they are what the answers before say.
pub(crate) fn finds(script: &mut Script, branches: &[&Branch]) -> Control {
    let manager = script.manager();
    let listed = script.recover(manager);
    assert_eq!(listed.iter().collect::<Vec<_>>(), branches);
    manager
}

const COMMITTED: [&str; 4] = ["m2", "m3", "n0", "n1"];
const ROLLED_BACK: [&str; 4] = ["m0", "m1", "m2", "m3"];

fn after(commit: bool) -> [&'static str; 4] {
    if commit { COMMITTED } else { ROLLED_BACK }
}

#[test]
fn fs_23_killed_when_prepared_then_committed() {
    deaths(2_300, |script, death| {
        let doubt = prepared(script);
        script.kill(death);
        restarted(script);
        assert_eq!(script.counts(Q), [2, 2, 2, 4]);
        let manager = finds(script, &[&doubt.x]);
        assert_eq!(doubt.browse(script), ["m2", "m3"]);
        let k = script.client();
        let r = script.consumer(k, Q, 10);
        script.receive(r, 0, 2);
        script.rest();
        assert_eq!(doubt.names(script.got(r)), ["m2", "m3"], "and nothing else");
        assert_eq!(script.commit(manager, &doubt.x), Some(0));
        script.receive(r, 2, 2);
        script.rest();
        assert_eq!(doubt.names(script.got(r)), COMMITTED);
        assert!(script.got(r)[2..].iter().all(|got| got.deliveries == 0));
        assert_eq!(script.recover(manager), []);
        script.kill(death);
        restarted(script);
        finds(script, &[]);
        assert_eq!(doubt.drain(script), COMMITTED, "m0 and m1 are gone for good");
    });
}

#[test]
fn fs_24_killed_when_prepared_then_rolled_back() {
    for (number, gives_back) in [false, true].into_iter().enumerate() {
        deaths(2_400 + 10 * number as u64, |script, death| {
            let doubt = prepared(script);
            script.kill(death);
            restarted(script);
            let manager = finds(script, &[&doubt.x]);
            let k = script.client();
            let r = script.consumer(k, Q, 1);
            let held = script.receive(r, 0, 1);
            assert_eq!(doubt.names(&held), ["m2"]);
            assert_eq!(script.rollback(manager, &doubt.x), Some(0));
            script.rest();
            assert_eq!(script.counts(Q), [3, 0, 0, 4]);
            // Browsers are not shown what K has.
            assert_eq!(doubt.browse(script), ["m0", "m1", "m3"]);
            let rest = if gives_back {
                decide(script, r, &held, Verdict::Release);
                script.rest();
                assert_eq!(doubt.browse(script), ROLLED_BACK);
                &ROLLED_BACK[..]
            } else {
                decide(script, r, &held, Verdict::Accept);
                &["m0", "m1", "m3"]
            };
            for (at, name) in rest.iter().enumerate() {
                script.rest();
                assert_eq!(script.counts(Q)[3], (rest.len() - at) as u64);
                script.grant(r, 1);
                let came = script.receive(r, 1 + at, 1);
                assert_eq!(doubt.names(&came), [*name]);
                assert!(came[0].deliveries == 1 || at > 1, "it was seen: {came:?}");
                decide(script, r, &came, Verdict::Accept);
            }
            script.rest();
            assert_eq!(script.counts(Q), [0; 4]);
            assert_eq!(script.rollback(manager, &doubt.x), Some(0), "remembered");
            script.close(k);
        });
    }
}

#[test]
fn fs_25_prepared_for_longer_than_any_timeout() {
    const TIMEOUT_US: u64 = 300_000_000;
    worlds(2_500, 1, |script| {
        let doubt = prepared(script);
        script.wait(3 * TIMEOUT_US);
        script.kill(Death::Kill);
        restarted(script);
        script.wait(3 * TIMEOUT_US);
        let manager = finds(script, &[&doubt.x]);
        assert_eq!(script.commit(manager, &doubt.x), Some(0));
        assert_eq!(doubt.drain(script), COMMITTED);
    });
}

#[test]
fn fs_26_killed_before_the_prepare_is_durable() {
    for (number, (point, death)) in places().filter(|(p, d)| is_kept(*p, *d) == Some(false)).enumerate() {
        worlds(2_600 + number as u64, 1, |script| {
            let doubt = worked(script);
            script.arm(BatchKind::Prepare, point, 1, death);
            assert_eq!(script.prepare(doubt.app, &doubt.x), None, "{point:?} {death:?}");
            back(script);
            let manager = finds(script, &[]);
            assert_eq!(script.prepare(manager, &doubt.x), Some(-4), "XAER_NOTA");
            let k = script.client();
            let r = script.consumer(k, Q, 10);
            let came = script.receive(r, 0, 4);
            assert_eq!(doubt.names(&came), ROLLED_BACK);
            assert!(came[..2].iter().all(|got| got.deliveries == 1), "they were seen: {came:?}");
            decide(script, r, &came, Verdict::Accept);
            script.rest();
        });
    }
}

#[test]
fn fs_27_killed_when_the_prepare_is_durable_and_nobody_knows() {
    let mut either = [0; 2];
    for (number, (point, death)) in places().filter(|(p, d)| is_kept(*p, *d) != Some(false)).enumerate() {
        let listed = std::cell::Cell::new(0);
        let runs = if is_kept(point, death).is_none() { 3 } else { 1 };
        worlds(2_700 + 10 * number as u64, runs, |script| {
            let doubt = worked(script);
            script.arm(BatchKind::Prepare, point, 1, death);
            assert_eq!(script.prepare(doubt.app, &doubt.x), None, "{point:?} {death:?}");
            back(script);
            let manager = script.manager();
            let there = !script.recover(manager).is_empty();
            assert!(there || is_kept(point, death).is_none(), "{point:?} {death:?}");
            listed.set(listed.get() + usize::from(there));
            assert_eq!(script.counts(Q), if there { [2, 2, 2, 4] } else { [4, 0, 0, 4] });
            assert_eq!(script.rollback(manager, &doubt.x), Some(if there { 0 } else { -4 }));
            assert_eq!(doubt.drain(script), ROLLED_BACK);
        });
        if runs > 1 {
            either[0] += listed.get();
            either[1] += 2 * runs as usize - listed.get();
        }
    }
    assert!(either.iter().all(|count| *count > 0), "what is torn is there or not: {either:?}");
}

/// X is prepared and K listens; the process ends when the decision is so far. Whether it is kept, and the next manager.
fn decided(script: &mut Script, commit: bool, point: packhorse_sim::Point, death: Death) -> (Doubt, Control, bool) {
    let doubt = prepared(script);
    let k = script.client();
    let r = script.consumer(k, Q, 10);
    script.receive(r, 0, 2);
    script.rest();
    script.arm(BatchKind::Decide, point, 1, death);
    assert_eq!(script.decide_branch(doubt.app, &doubt.x, commit), None, "{point:?} {death:?}");
    back(script);
    assert_eq!(doubt.names(script.got(r)), ["m2", "m3"], "{point:?} {death:?}: nothing was seen of it");
    let manager = script.manager();
    let kept = script.recover(manager).is_empty();
    assert_eq!(kept, is_kept(point, death).unwrap_or(kept), "{point:?} {death:?}");
    assert_eq!(script.counts(Q), if kept { [4, 0, 0, 4] } else { [2, 2, 2, 4] }, "{point:?} {death:?}");
    (doubt, manager, kept)
}

#[test]
fn fs_28_killed_before_the_decision_is_durable() {
    let places = places().filter(|(p, d)| is_kept(*p, *d) == Some(false));
    for (number, (point, death)) in places.enumerate() {
        for commit in [true, false] {
            worlds(2_800 + 2 * number as u64 + u64::from(commit), 1, |script| {
                let (doubt, manager, kept) = decided(script, commit, point, death);
                assert!(!kept, "it is in doubt as before");
                assert_eq!(script.decide_branch(manager, &doubt.x, commit), Some(0));
                assert_eq!(doubt.drain(script), after(commit));
            });
        }
    }
}

#[test]
fn fs_29_killed_when_the_decision_is_durable_and_not_applied() {
    let mut either = [0; 2];
    let places = places().filter(|(p, d)| is_kept(*p, *d) != Some(false));
    for (number, (point, death)) in places.enumerate() {
        for commit in [true, false] {
            let there = std::cell::Cell::new(0);
            let runs = if is_kept(point, death).is_none() { 2 } else { 1 };
            worlds(2_900 + 10 * number as u64 + 5 * u64::from(commit), runs, |script| {
                let (doubt, manager, kept) = decided(script, commit, point, death);
                there.set(there.get() + usize::from(kept));
                assert_eq!(script.decide_branch(manager, &doubt.x, commit), Some(0), "asked again");
                assert_eq!(script.decide_branch(manager, &doubt.x, !commit), Some(-4), "and not the opposite");
                assert_eq!(doubt.drain(script), after(commit));
            });
            if runs > 1 {
                either[0] += there.get();
                either[1] += 2 * runs as usize - there.get();
            }
        }
    }
    assert!(either.iter().all(|count| *count > 0), "what is torn is there or not: {either:?}");
}

#[test]
fn fs_29_what_is_completed_is_forgotten_in_time() {
    // Twice, for what its home keeps longer than its store.
    const REMEMBERED_US: u64 = 2 * 600_000_000;
    worlds(2_999, 1, |script| {
        let (doubt, manager, _) = decided(script, true, packhorse_sim::Point::AfterSync, Death::Kill);
        script.wait(REMEMBERED_US / 3);
        assert_eq!(script.commit(manager, &doubt.x), Some(0));
        script.wait(REMEMBERED_US);
        assert_eq!(script.commit(manager, &doubt.x), Some(-4), "XAER_NOTA");
    });
}

#[test]
fn fs_30_the_managers_connection_is_cut_after_and_before_the_prepare() {
    let ends: [fn(&mut Script, Control); 3] = [
        |script, control| script.cut(script.client_of_control(control)),
        |script, control| script.kill_client(script.client_of_control(control)),
        |script, control| script.close(script.client_of_control(control)),
    ];
    for (number, end) in ends.into_iter().enumerate() {
        worlds(3_000 + 10 * number as u64, 2, |script| {
            let doubt = prepared(script);
            end(script, doubt.app);
            let manager = finds(script, &[&doubt.x]);
            assert_eq!(script.commit(manager, &doubt.x), Some(0));
            assert_eq!(doubt.drain(script), COMMITTED);
            let doubt = worked(script);
            end(script, doubt.app);
            script.until("it is rolled back", |s| s.counts(Q)[0] == 4);
            let manager = finds(script, &[]);
            assert_eq!(script.prepare(manager, &doubt.x), Some(101), "XA_RBCOMMFAIL");
            let left = script.drain(Q);
            assert_eq!(doubt.names(&left), ROLLED_BACK);
            // Whoever closes in order gives back unseen what it had not acknowledged for good.
            assert_eq!(left.iter().map(|got| got.deliveries).collect::<Vec<_>>(), [1, 1, 0, 0]);
        });
    }
}

#[test]
fn fs_31_killed_again_and_again_while_recovering() {
    for (number, death) in Death::ALL.into_iter().enumerate() {
        let mut hits = 0;
        for seed in 3_100 + 10 * number as u64..3_103 + 10 * number as u64 {
            let mut world = Script::with_checkpoints(seed, 1 + (seed % 2) as u16, &[Q, "other"], Some(15_000));
            let script = &mut world;
            let doubt = prepared(script);
            // Checkpoints, and segments that are used again, over the head of the branch.
            let load = script.client();
            let sender = script.producer(load, "other");
            for _ in 0..3 {
                for _ in 0..10 {
                    script.send_shaped(sender, packhorse_sim::Shape { size: 60_000, ..Default::default() });
                }
                assert_eq!(script.drain("other").len(), 10);
                script.wait(20_000);
            }
            script.kill(death);
            for _ in 0..5 {
                let (starts, n) = (script.starts(), script.draw(1, 12));
                script.kill_start(n, [When::Before, When::During, When::After][(n % 3) as usize], death);
                script.until("a start is tried", |s| s.starts() > starts);
                if script.is_running() {
                    script.disarm();
                    script.kill(death);
                } else {
                    hits += 1;
                }
            }
            script.until("the broker runs", |s| s.is_running());
            assert_eq!(script.counts(Q), [2, 2, 2, 4]);
            let manager = finds(script, &[&doubt.x]);
            assert_eq!(doubt.browse(script), ["m2", "m3"]);
            assert_eq!(script.commit(manager, &doubt.x), Some(0));
            script.kill(death);
            restarted(script);
            // Bodies check themselves.
            assert_eq!(doubt.drain(script), COMMITTED);
            let manager = finds(script, &[]);
            assert_eq!(script.commit(manager, &doubt.x), Some(0), "remembered over all of them");
            world.finish();
        }
        assert!(hits >= 8, "{hits} of 15 starts were killed");
    }
}

#[test]
fn fs_32_rolled_back_among_messages_that_came_later() {
    for (number, death) in Death::ALL.map(Some).into_iter().chain([None]).enumerate() {
        worlds(3_200 + number as u64, 1, |script| {
            let doubt = prepared(script);
            let later = script.client();
            let sender = script.producer(later, Q);
            script.send(sender, 20);
            script.rest();
            if let Some(death) = death {
                script.kill(death);
                restarted(script);
            }
            let manager = finds(script, &[&doubt.x]);
            assert_eq!(script.rollback(manager, &doubt.x), Some(0));
            let all = script.drain(Q);
            assert_eq!(doubt.names(&all[..4]), ROLLED_BACK);
            assert_eq!(crate::numbers(&all[4..]), (0..20).collect::<Vec<_>>());
        });
    }
}

#[test]
fn fs_33_two_branches_interleaved_on_a_queue() {
    deaths(3_300, |script, death| {
        crate::filled(script, Q, 4);
        let who = script.client();
        let controls = [script.control(who), script.control(who)];
        let receiver = script.consumer(who, Q, 4);
        let got = script.receive(receiver, 0, 4);
        let branches = [script.branch(), script.branch()];
        let txs = [0, 1].map(|at| script.begin(controls[at], &branches[at]));
        for (at, one) in got.iter().enumerate() {
            script.accept_in(&txs[at % 2], receiver, one.delivery);
        }
        for at in 0..2 {
            assert_eq!(script.end(controls[at], &branches[at], flags::SUCCESS), Some(0));
            assert_eq!(script.prepare(controls[at], &branches[at]), Some(0));
        }
        script.kill(death);
        restarted(script);
        let [x, y] = &branches;
        let manager = finds(script, &[x, y]);
        assert_eq!(script.commit(manager, y), Some(0));
        assert_eq!(script.recover(manager), std::slice::from_ref(x));
        assert_eq!(script.rollback(manager, x), Some(0));
        let left = script.drain(Q);
        assert_eq!(crate::numbers(&left), [0, 2]);
        assert!(left.iter().all(|got| got.deliveries == 1), "{left:?}");
    });
}
