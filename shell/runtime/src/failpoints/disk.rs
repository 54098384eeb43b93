//! Failpoints of the data directory: which one an operation of the journal passes.

use super::{Failed, registry};
use packhorse_journal::{DiskOp, FileName, IoError, IoErrorKind};
use std::sync::Mutex;

/// How far the checkpoint is that is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// None is.
    Idle,
    /// Its sections are.
    Sections,
    /// Its header is safe, and no segment has been given up since.
    Switched,
}

static STAGE: Mutex<Stage> = Mutex::new(Stage::Idle);

/// Called before each operation (`after` false), and after each that went well.
pub(crate) fn probe(op: &DiskOp, after: bool) -> Result<(), IoError> {
    let points = passes(op, after, &mut STAGE.lock().expect("a panic under this lock ends the process"));
    for point in points.into_iter().flatten() {
        registry()
            .hit(point)
            .map_err(|Failed| IoError { kind: IoErrorKind::Other, text: format!("the failpoint {point} says so") })?;
    }
    Ok(())
}

fn passes(op: &DiskOp, after: bool, stage: &mut Stage) -> [Option<&'static str>; 3] {
    let header = matches!(op, DiskOp::Write { name: FileName::Checkpoint(_), offset: 0, sync: true, .. });
    if after {
        if header {
            *stage = Stage::Switched;
        }
        return [header.then_some("checkpoint.after_switch"), None, None];
    }
    let checkpoint = match op {
        _ if header => Some("checkpoint.before_switch"),
        DiskOp::Create { name: FileName::Checkpoint(_), .. }
        | DiskOp::Write { name: FileName::Checkpoint(_), .. }
        | DiskOp::Sync { name: FileName::Checkpoint(_) } => {
            let first = *stage != Stage::Sections;
            *stage = Stage::Sections;
            Some(if first { "checkpoint.begin" } else { "checkpoint.mid" })
        }
        DiskOp::Rename { from: FileName::Segment(_), .. } | DiskOp::Unlink { name: FileName::Segment(_) }
            if *stage == Stage::Switched =>
        {
            *stage = Stage::Idle;
            Some("checkpoint.before_delete_old")
        }
        _ => None,
    };
    let (what, also) = match op {
        DiskOp::CreateDir { .. } | DiskOp::Create { .. } => (Some("disk.create"), None),
        DiskOp::Write { sync, .. } => (Some("disk.write"), sync.then_some("disk.sync")),
        DiskOp::Sync { .. } | DiskOp::SyncDir { .. } => (Some("disk.sync"), None),
        DiskOp::Rename { .. } => (Some("disk.rename"), None),
        DiskOp::Unlink { .. } => (Some("disk.unlink"), None),
        DiskOp::Read { .. } => (Some("disk.read"), None),
        DiskOp::Uncache { .. } => (None, None),
    };
    [checkpoint, what, also]
}

#[cfg(test)]
mod tests {
    use super::*;
    use packhorse_journal::Slot;

    #[test]
    fn a_checkpoint_passes_its_points_in_order() {
        let name = FileName::Checkpoint(Slot::A);
        let write = |offset, sync| DiskOp::Write { name, offset, pieces: Vec::new(), sync };
        let segment = || DiskOp::Rename { from: FileName::Segment(1), to: FileName::Pool(1) };
        let mut stage = Stage::Idle;
        let mut heard = Vec::new();
        for op in [write(4096, false), write(8192, false), DiskOp::Sync { name }, write(0, true), segment(), segment()]
        {
            for after in [false, true] {
                let points = passes(&op, after, &mut stage);
                heard.extend(points.into_iter().flatten().filter(|point| point.starts_with("checkpoint.")));
            }
        }
        let order = ["begin", "mid", "before_switch", "after_switch", "before_delete_old"];
        assert_eq!(heard, order.map(|point| format!("checkpoint.{point}")));
        assert_eq!(stage, Stage::Idle);
    }
}
