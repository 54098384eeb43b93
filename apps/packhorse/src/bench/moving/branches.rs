//! Branches that stay prepared: the log of them, and whether a broker that died knows them all.

use super::ring::Ring;
use super::{count, plan};
use crate::End;
use crate::bench::clock;
use crate::bench::options::Bench;
use crate::bench::producer::misuse;
use crate::bench::wire::{READ_BYTES, Wire};
use packhorse_client_core::transaction::{Request, Response, XaCommit, XaRecover, XaXid};
use packhorse_client_core::{Client, ControllerOptions, Event, Limits, LinkId, response};
use packhorse_model::Xid;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Branches of a page.
const PAGE: u32 = 1000;
/// Commits without an answer.
const COMMITS: usize = 100;

/// Writes the branches whose prepare was answered, one a line.
pub(super) fn write_log(bench: &Bench, prepared: &[Xid]) -> Result<(), End> {
    let Some(path) = &bench.log else { return Ok(()) };
    let mut text = String::new();
    for xid in prepared {
        // Into a string it cannot fail.
        let _ = writeln!(text, "{xid}");
    }
    std::fs::write(path, text).map_err(|e| End::Refused(format!("cannot write {}: {e}", path.display())))
}

fn read_log(path: &Path) -> Result<BTreeSet<Xid>, End> {
    let wrong = |why: &dyn std::fmt::Display| End::Refused(format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|e| wrong(&e))?;
    text.lines().map(|line| Xid::parse(line).map_err(|e| wrong(&e))).collect()
}

/// Asks for all branches that are in doubt and compares them with the log; then commits them and counts what is in the queues.
pub(crate) fn recover(bench: &Bench) -> Result<Value, End> {
    let expected = read_log(bench.log.as_deref().unwrap_or(Path::new("")))?;
    let begun_ns = clock::now_ns();
    let mut asker = Asker::open(bench)?;
    let answered = asker.recover()?;
    let complete_ns = clock::now_ns();
    let missing = expected.iter().filter(|xid| !answered.contains(xid)).count();
    let unexpected = answered.iter().filter(|xid| !expected.contains(xid)).count();
    let ordered = answered.windows(2).all(|pair| pair[0] < pair[1]);
    asker.commit(&answered)?;
    asker.wire.close(&mut asker.buffer)?;
    let plan = plan(bench, bench.run.unwrap_or(0), bench.span(0));
    let mut ring = Ring::new(bench.queue.len(), bench.ring.unwrap_or(0));
    count(&plan, &mut vec![0; READ_BYTES], &mut ring)?;
    if missing > 0 || unexpected > 0 || !ordered {
        ring.tell(|| {
            format!("recover: {missing} branches are missing, {unexpected} are unexpected, in order: {ordered}")
        });
    }
    let violations = ring.violations.total() + missing as u64 + unexpected as u64 + u64::from(!ordered);
    let rows: serde_json::Map<_, _> =
        ring.violations.rows().iter().map(|(name, count)| (name.to_string(), json!(count))).collect();
    Ok(json!({
        "recover": {
            "expected": expected.len(),
            "answered": answered.len(),
            "missing": missing,
            "unexpected": unexpected,
            "begun_ns": begun_ns,
            "complete_ns": complete_ns,
            "milliseconds": (complete_ns - begun_ns) as f64 / 1e6,
            "violations": rows,
            "violations_told": ring.told,
        },
        "violations": violations,
    }))
}

/// A transaction manager after a crash.
struct Asker {
    wire: Wire,
    controller: LinkId,
    buffer: Vec<u8>,
}

impl Asker {
    fn open(bench: &Bench) -> Result<Asker, End> {
        let (mut wire, session) = Wire::open(&bench.amqp, "bench-recover")?;
        let options = ControllerOptions { name: "bench-recover", xa: true, token: 0 };
        let controller = wire.client.controller(session, &options).map_err(misuse)?;
        wire.set_patience(PATIENCE)?;
        let mut asker = Asker { wire, controller, buffer: vec![0; READ_BYTES] };
        while !asker.wire.client.sendable(controller) {
            asker.turn(|_, _| Ok(()))?;
        }
        Ok(asker)
    }

    fn turn(&mut self, on: impl FnMut(&mut Client, Event<'_>) -> Result<(), End>) -> Result<(), End> {
        self.wire.write()?;
        let mut on = on;
        if self.wire.read(&mut self.buffer, true, |client, event, _| on(client, event))? {
            return Ok(());
        }
        Err(End::Refused(format!("the coordinator says nothing for {} s", PATIENCE.as_secs())))
    }

    /// All branches in doubt, page by page.
    fn recover(&mut self) -> Result<Vec<Xid>, End> {
        let mut all: Vec<Xid> = Vec::new();
        loop {
            let after = all.last().map(|xid| XaXid {
                format_id: xid.format_id(),
                global_id: xid.global(),
                branch_qualifier: xid.qualifier(),
            });
            let request = Request::Recover(XaRecover { after, max: PAGE });
            self.wire.client.request(self.controller, 0, &request).map_err(misuse)?;
            let mut page = None;
            while page.is_none() {
                self.turn(|_, event| {
                    let Event::Outcomes { state } = event else { return Ok(()) };
                    let Response::Result(result) = response(state.as_ref()) else {
                        return Err(End::Refused(format!("recover is answered by {state:?}")));
                    };
                    let xids = result.xids(&Limits::default()).map_err(|e| End::Refused(e.to_string()))?;
                    let own = |x: &XaXid<'_>| Xid::new(x.format_id, x.global_id, x.branch_qualifier);
                    let xids: Result<Vec<Xid>, _> = xids.iter().map(own).collect();
                    page = Some((xids.map_err(|e| End::Refused(e.to_string()))?, result.more));
                    Ok(())
                })?;
            }
            let Some((xids, more)) = page else { break };
            all.extend(xids);
            if !more {
                break;
            }
        }
        Ok(all)
    }

    /// Commits them in this order.
    fn commit(&mut self, xids: &[Xid]) -> Result<(), End> {
        let (mut asked, mut done) = (0, 0);
        while done < xids.len() {
            while asked < xids.len() && asked - done < COMMITS && self.wire.client.sendable(self.controller) {
                let xid = &xids[asked];
                let (format_id, global_id, branch_qualifier) = (xid.format_id(), xid.global(), xid.qualifier());
                let commit = XaCommit { format_id, global_id, branch_qualifier, one_phase: false };
                let request = Request::Commit(commit);
                self.wire.client.request(self.controller, asked as u64, &request).map_err(misuse)?;
                asked += 1;
            }
            self.turn(|client, event| {
                let Event::Outcomes { state } = event else { return Ok(()) };
                match response(state.as_ref()) {
                    Response::Result(result) if result.code == 0 => {}
                    other => return Err(End::Refused(format!("a commit is answered by {other:?}"))),
                }
                done += client.outcomes().iter().filter(|outcome| !outcome.repeated).count();
                Ok(())
            })?;
        }
        Ok(())
    }
}
