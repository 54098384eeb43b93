//! Between the words of homes and those of the store: records out, and what a start recovers in.

use packhorse_model::QueueId;
use packhorse_store as store;
use packhorse_store::{Batch, Figures, HeuristicOutcome, Numbers, Op, TxnPart};
use packhorse_txn::{Act, Audit, Decision, Heuristic, LostPart, Part, Record, RecoveredBranch, SessionInput};

/// A record in the store's words. The bodies that it has go into the batch.
pub(super) fn operation(record: Record<TxnPart>, batch: &mut Batch) -> Op {
    match record {
        Record::Commit { txn, mut parts, token, xid, at_ms } => {
            parts.iter_mut().for_each(|(_, part)| part.hand_over(batch));
            Op::Commit(Box::new(store::Commit { txn, parts, token, xid, at_ms }))
        }
        Record::Prepare { txn, xid, parts, figures, client, wall_ms, at_ms } => {
            let with_figures = |(queue, mut part): (QueueId, TxnPart)| {
                part.hand_over(batch);
                let Figures { adds, bytes, .. } = part.duplicates;
                let found = figures.binary_search_by_key(&queue, |(queue, _)| *queue);
                let figures = found.map_or(Part::default(), |at| figures[at].1);
                let told = figures_of(figures);
                (
                    queue,
                    part,
                    Figures { adds: told.adds.saturating_sub(adds), bytes: told.bytes.saturating_sub(bytes), ..told },
                )
            };
            let parts = parts.into_iter().map(with_figures).collect();
            Op::Prepare(Box::new(store::Prepare { txn, xid, client, parts, wall_ms, at_ms }))
        }
        Record::Decide { xid, decision, parts, at_ms } => {
            let (commit, numbers) = (decision == Decision::Commit, numbers(&parts));
            Op::Decide(Box::new(store::Decide { xid, commit, numbers, at_ms }))
        }
        Record::Heuristic { xid, outcome, decision, parts, who, reason, wall_ms, at_ms } => {
            let outcome = match outcome {
                Heuristic::Committed => HeuristicOutcome::Committed,
                Heuristic::RolledBack => HeuristicOutcome::RolledBack,
                Heuristic::Mixed => HeuristicOutcome::Mixed,
                Heuristic::PartRolledBack(queue) => HeuristicOutcome::PartRolledBack(queue),
            };
            let (commit, numbers) = (decision == Decision::Commit, numbers(&parts));
            Op::Heuristic(Box::new(store::Heuristic { xid, outcome, commit, numbers, who, reason, wall_ms, at_ms }))
        }
        Record::Forget { xid } => Op::Forget { xid },
    }
}

fn numbers(parts: &[(QueueId, TxnPart)]) -> Vec<(QueueId, Numbers)> {
    parts.iter().filter_map(|(queue, part)| Some((*queue, part.numbers?))).collect()
}

fn figures_of(part: Part) -> Figures {
    Figures { adds: part.adds, removes: part.removes, bytes: part.bytes }
}

/// Something recovered, and for whom.
pub(super) enum Recovered {
    ForHome(packhorse_txn::Recovered),
    ForSessions(SessionInput),
}

/// What of transactions a start recovers, in the words of homes; `None`: it is something else.
pub(super) fn recovered(recovered: store::Recovered) -> Option<Recovered> {
    Some(match recovered {
        store::Recovered::Branch(branch) => {
            Recovered::ForHome(packhorse_txn::Recovered::Branch(recovered_branch(*branch)))
        }
        store::Recovered::Completed { xid, committed, at_ms } => {
            let decision = if committed { Decision::Commit } else { Decision::Rollback };
            Recovered::ForHome(packhorse_txn::Recovered::Completed { xid, decision, at_ms })
        }
        store::Recovered::Session(session) => {
            let store::RecoveredSession { session, floor, runs, used_ms } = *session;
            Recovered::ForSessions(SessionInput::Recovered { session, floor, runs, used_ms })
        }
        _ => return None,
    })
}

fn recovered_branch(branch: store::RecoveredBranch) -> RecoveredBranch {
    let store::RecoveredBranch { txn, xid, client, wall_ms, at_ms, parts, lost, volatile, decided } = branch;
    let part = |f: Figures| Part { adds: f.adds, removes: f.removes, bytes: f.bytes };
    let lost: Vec<LostPart> = lost
        .into_iter()
        .map(|store::LostPart { queue, who, reason, wall_ms }| LostPart { queue, who, reason, wall_ms })
        .collect();
    let audit =
        |act, who: String, reason: String, wall_ms| Box::new(Audit { xid: xid.clone(), act, who, reason, wall_ms });
    let decided = match decided {
        Some(decided) => {
            let store::Heuristic { outcome, commit, who, reason, wall_ms, .. } = *decided;
            let (outcome, act) = match (outcome, commit) {
                (HeuristicOutcome::Committed, _) => (Heuristic::Committed, Act::Commit),
                (HeuristicOutcome::RolledBack, _) => (Heuristic::RolledBack, Act::Rollback),
                (HeuristicOutcome::Mixed, true) => (Heuristic::Mixed, Act::Commit),
                (HeuristicOutcome::Mixed, false) => (Heuristic::Mixed, Act::Rollback),
                (HeuristicOutcome::PartRolledBack(queue), _) => (Heuristic::PartRolledBack(queue), Act::Force(queue)),
            };
            Some((outcome, audit(act, who, reason, wall_ms)))
        }
        // Nothing but parts was decided; the last of them is told.
        None => lost.last().map(|lost| {
            let audit = audit(Act::Force(lost.queue), lost.who.clone(), lost.reason.clone(), lost.wall_ms);
            (Heuristic::PartRolledBack(lost.queue), audit)
        }),
    };
    let parts = parts.into_iter().map(|(queue, figures)| (queue, part(figures))).collect();
    RecoveredBranch { txn, xid, client, wall_ms, at_ms, parts, lost, volatile, decided }
}
