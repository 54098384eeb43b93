//! T12 of the fault plan: a branch is started, worked in, ended, prepared and decided, and at each of these steps the manager dies, or the
//! broker, or both, or what links them. What is in doubt is decided from another connection as the manager's log says, and the branch
//! has happened as a whole or not at all.

use crate::{Q, numbers, restarted};
use packhorse_client_core::transaction::flags;
use packhorse_sim::{Branch, Control, Death, Heard, Receiver, Script, Sender};

const OUT: &str = "other";

/// What is done with a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Start,
    /// A message is taken, and another one is sent.
    Work,
    End,
    Prepare,
    Commit,
    Rollback,
    /// An operator was quicker than the manager, which has heard of it and forgets it.
    Forget,
}

const STEPS: [Step; 7] =
    [Step::Start, Step::Work, Step::End, Step::Prepare, Step::Commit, Step::Rollback, Step::Forget];

/// When in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// Nothing of it was sent.
    Before,
    /// It was sent, and the answer is not waited for.
    During,
    /// It was answered.
    After,
}

/// Who dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// The manager: its log stays.
    Manager,
    /// The broker, in any way in which a process ends.
    Broker,
    Both,
    /// The connection: what is on its way is lost.
    Link,
    /// The connection, and the broker is told nothing.
    Silently,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    step: Step,
    when: When,
    who: Who,
}

/// A branch and whoever works in it.
struct Work {
    x: Branch,
    control: Control,
    receiver: Receiver,
    sender: Sender,
    /// In the manager's log; none: it is to be rolled back.
    decision: Option<bool>,
    /// An operator's.
    heuristic: Option<bool>,
}

/// What is found in each kind of cell, so that a table that tests nothing is seen.
#[derive(Debug, Default)]
struct Found {
    listed: u32,
    committed: u32,
    rolled_back: u32,
    unanswered: u32,
}

impl Work {
    fn new(script: &mut Script) -> Work {
        let writer = script.client();
        let sender = script.producer(writer, Q);
        script.send(sender, 1);
        script.rest();
        script.close(writer);
        let who = script.client();
        let control = script.control(who);
        let (receiver, sender) = (script.consumer(who, Q, 1), script.producer(who, OUT));
        script.receive(receiver, 0, 1);
        script.rest();
        Work { x: script.branch(), control, receiver, sender, decision: None, heuristic: None }
    }

    /// Asks for a step, and waits for nothing.
    fn post(&self, script: &mut Script, step: Step) {
        let (control, x) = (self.control, &self.x);
        match step {
            Step::Start => script.post_start(control, x),
            Step::Work => self.work(script),
            Step::End => script.post_end(control, x),
            Step::Prepare => script.post_prepare(control, x),
            Step::Commit => script.post_decision(control, x, true),
            Step::Rollback => script.post_decision(control, x, false),
            Step::Forget => script.post_forget(control, x),
        }
    }

    fn work(&self, script: &mut Script) {
        let (tx, delivery) = (script.tx(self.control), script.got(self.receiver)[0].delivery);
        script.accept_in(&tx, self.receiver, delivery);
        script.send_in(&tx, self.sender, 1);
    }

    fn carry_out(&self, script: &mut Script, step: Step) {
        let (control, x) = (self.control, &self.x);
        let code = match step {
            Step::Start => script.start(control, x, flags::NONE),
            Step::Work => {
                self.work(script);
                script.rest();
                Some(0)
            }
            Step::End => script.end(control, x, flags::SUCCESS),
            Step::Prepare => script.prepare(control, x),
            Step::Commit => script.commit(control, x),
            Step::Rollback => script.rollback(control, x),
            Step::Forget => script.forget(control, x),
        };
        assert_eq!(code, Some(0), "{step:?}");
    }

    /// Up to the step at which somebody dies.
    fn live(&mut self, script: &mut Script, cell: Cell) {
        for step in STEPS.into_iter().take_while(|step| *step < Step::Commit && *step < cell.step) {
            self.carry_out(script, step);
        }
        if cell.step > Step::Prepare {
            self.decision = Some(match cell.step {
                Step::Commit => true,
                Step::Rollback => false,
                _ => script.draw(0, 1) == 0,
            });
        }
        if cell.step == Step::Forget {
            let commits = script.draw(0, 1) == 0;
            assert_eq!(script.decide_by_operator(&self.x, commits), Some(true));
            self.heuristic = Some(commits);
            let code = script.decide_branch(self.control, &self.x, self.decision == Some(true));
            assert_eq!(code, Some(heuristic(commits)), "what the manager hears");
        }
        match cell.when {
            When::Before => {}
            When::During => {
                self.post(script, cell.step);
                let us = script.draw(1, [40, 400, 4_000][(cell.step as usize + cell.who as usize) % 3]);
                script.wait(us);
            }
            When::After => self.carry_out(script, cell.step),
        }
        if (cell.step, cell.when) == (Step::Prepare, When::After) {
            // It dies before it has decided, or after it has written that down.
            self.decision = [None, Some(true), Some(false)][script.draw(0, 2) as usize];
        }
    }

    fn die(&self, script: &mut Script, who: Who) {
        let client = script.client_of_control(self.control);
        let death = Death::ALL[script.draw(0, 4) as usize];
        match who {
            Who::Manager => script.kill_client(client),
            Who::Link => script.cut(client),
            Who::Silently => script.vanish(client),
            Who::Broker => {
                script.kill(death);
                restarted(script);
            }
            Who::Both => {
                if script.draw(0, 1) == 0 {
                    script.kill_client(client);
                    let us = script.draw(1, 300);
                    script.wait(us);
                    script.kill(death);
                } else {
                    script.kill(death);
                    script.kill_client(client);
                }
                restarted(script);
            }
        }
        script.until("the manager is gone", |s| !s.is_there(client));
    }

    /// What the log says, from another connection. Whether the branch has happened.
    fn recover(&self, script: &mut Script, cell: Cell, found: &mut Found) -> bool {
        let (manager, x) = (script.manager(), &self.x);
        let listed = script.recover(manager).contains(x);
        found.listed += u32::from(listed);
        found.unanswered += u32::from(matches!(script.heard(x), Some(Heard::Asked | Heard::Deciding(_))));
        let decision = self.decision.unwrap_or(false);
        let happened = match (self.heuristic, script.heard(x)) {
            (Some(commits), _) => {
                // It is listed until it is forgotten.
                assert!(listed || cell.when != When::Before, "listed before the forget");
                assert!(!listed || cell.when != When::After, "not listed after it");
                if listed {
                    let code = script.decide_branch(manager, x, decision);
                    // The forget that was sent may have arrived only now.
                    let late = cell.when == When::During && code == Some(-4);
                    assert!(late || code == Some(heuristic(commits)), "{code:?}");
                }
                let code = script.forget(manager, x);
                assert!(code == Some(0) || (code == Some(-4) && cell.when != When::Before), "{code:?}");
                commits
            }
            (None, Some(Heard::Decided(commits))) => {
                assert_eq!(script.decide_branch(manager, x, commits), Some(0), "the same decision again");
                commits
            }
            (None, _) => {
                // As long as the broker believes in the old connection, its work cannot be ended by others.
                let code = loop {
                    match script.decide_branch(manager, x, decision) {
                        Some(-6) => script.wait(100_000),
                        code => break code.expect("the connection stands"),
                    }
                };
                assert!(code == 0 || (!decision && matches!(code, -4 | 100..=107)), "commit {decision}: {code}");
                decision
            }
        };
        assert_eq!(script.recover(manager), []);
        script.close(script.client_of_control(manager));
        happened
    }
}

/// What a manager hears of an operator's decision.
fn heuristic(commits: bool) -> i32 {
    if commits { 7 } else { 6 }
}

#[test]
fn t12_whoever_dies_at_each_step_a_branch_happens_as_a_whole_or_not_at_all() {
    const TIMES: u64 = 20;
    let (mut cells, mut found) = (0, Found::default());
    for time in 0..TIMES {
        for step in STEPS {
            let seed = 12_000 + 10 * time + step as u64;
            let mut script = Script::new(seed, 1 + (time % 2) as u16, &[Q, OUT]);
            for when in [When::Before, When::During, When::After] {
                for who in [Who::Manager, Who::Broker, Who::Both, Who::Link, Who::Silently] {
                    let cell = Cell { step, when, who };
                    println!("seed {seed}, {cell:?}");
                    let mut work = Work::new(&mut script);
                    work.live(&mut script, cell);
                    work.die(&mut script, who);
                    let happened = work.recover(&mut script, cell, &mut found);
                    *(if happened { &mut found.committed } else { &mut found.rolled_back }) += 1;
                    let (there, sent) = (script.drain(Q), script.drain(OUT));
                    assert_eq!((there.len(), sent.len()), (usize::from(!happened), usize::from(happened)), "{cell:?}");
                    assert_eq!(numbers(&[there, sent].concat()), [0], "{cell:?}");
                    cells += 1;
                }
            }
            script.finish();
        }
    }
    assert_eq!(cells, 105 * TIMES);
    assert!(found.listed >= 200 && found.committed >= 200 && found.unanswered >= 50, "{found:?}");
}
