//! The checker: reads the files of all processes together, by time, and judges (`spec/checker.md`).
//!
//! Owns the merge and the settings. Must not know: how files are opened, or the broker.

mod accounting;
mod atomic;
mod bounds;
mod brokers;
mod browse;
mod claims;
mod consumers;
mod explain;
mod judge;
mod messages;
mod operators;
mod order;
mod place;
mod prepared;
mod queues;
mod record;
mod transactions;

use crate::error::HistoryError;
use crate::report::Report;
use crate::source::Source;
use record::Record;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::BufRead;

/// How to judge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Silence of so many nanoseconds is I9. One second.
    pub stuck_ns: u64,
    /// Times of two processes that are nearer than this, in nanoseconds, say nothing about order: a client may read its clock
    /// once for several events. Two milliseconds.
    pub slack_ns: u64,
    /// A broker may not know for so long that a link is over: one that closed without seeing an answer, or that broke. Until then it may
    /// send what nobody reads. One second.
    pub unaware_ns: u64,
    /// Where dead letters go. A message that was delivered once can be called lost only if all of these were seen empty. `DLQ`.
    pub dead_letter_queues: Vec<String>,
    /// Where expired messages go. A message with a time to live can be called lost only if all of these were seen empty. `Expiry`.
    pub expiry_queues: Vec<String>,
    /// How many violations of each invariant the report describes; the others are counted. 100.
    pub shown_most: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            stuck_ns: 1_000_000_000,
            slack_ns: 2_000_000,
            unaware_ns: 1_000_000_000,
            dead_letter_queues: vec!["DLQ".to_owned()],
            expiry_queues: vec!["Expiry".to_owned()],
            shown_most: 100,
        }
    }
}

/// Reads a history, one source for each client process with the name that the report calls it by, and judges it. All sources are read
/// side by side. Err: a file is no history, or contradicts itself; then nothing is judged.
pub fn check_files<R: BufRead>(
    files: impl IntoIterator<Item = (String, R)>,
    options: &Options,
) -> Result<Report, HistoryError> {
    let mut report = Report::new(options.shown_most);
    let mut record = Record::new(options.clone());
    let mut sources: Vec<Source<R>> = Vec::new();
    let mut merge = BinaryHeap::new();
    for (name, reader) in files {
        let Some(source) = Source::open(name.clone(), reader)? else {
            report.note(format!("{name}: empty, its writer was killed before the first line was whole"));
            continue;
        };
        fits(&sources, &source)?;
        let index = record.add_file(source.name(), source.header());
        merge.push(Reverse((source.header().mono_ns, index, true)));
        sources.push(source);
    }
    while let Some(Reverse((at, index, begins))) = merge.pop() {
        let source = &mut sources[index];
        if begins {
            record.begin(index, at).map_err(|what| HistoryError::new(source.name(), 1, what))?;
        } else {
            take(&mut record, index, source)?;
        }
        // Events of one file keep their order, whatever their times say.
        let mut now = at;
        loop {
            if !source.advance()? {
                break;
            }
            now = now.max(source.at_ns());
            if merge.peek().is_some_and(|Reverse((next, ..))| *next < now) {
                merge.push(Reverse((now, index, false)));
                break;
            }
            take(&mut record, index, source)?;
        }
    }
    record.finish();
    judge::judge(&record, &mut report);
    notes(&record, &sources, &mut report);
    report.sort();
    Ok(report)
}

fn take<R: BufRead>(record: &mut Record, index: usize, source: &Source<R>) -> Result<(), HistoryError> {
    let event = source.event()?;
    record
        .event(index, source.line(), source.at_ns(), &event)
        .map_err(|what| HistoryError::new(source.name(), source.line(), what))
}

/// Whether a file belongs to those before it.
fn fits<R: BufRead>(sources: &[Source<R>], source: &Source<R>) -> Result<(), HistoryError> {
    let Some(first) = sources.first() else { return Ok(()) };
    let (one, other) = (first.header(), source.header());
    let differs =
        |what: &str| HistoryError::new(source.name(), 1, format!("it is of another {what} than {}", first.name()));
    if one.run != other.run {
        return Err(differs("run"));
    }
    if one.clock != other.clock {
        // Times of two machines cannot be compared; judging them as if they could would blame the innocent.
        return Err(differs("clock"));
    }
    Ok(())
}

fn notes<R: BufRead>(record: &Record, sources: &[Source<R>], report: &mut Report) {
    for source in sources.iter().filter(|source| source.is_cut()) {
        report.note(format!("{}:{}: the last line is incomplete and was left out", source.name(), source.line()));
    }
    let killed = record.files.iter().filter(|file| !file.ended).count();
    if killed > 0 {
        report.note(format!(
            "{killed} of {} files have no `end`: their processes did not end in order",
            record.files.len()
        ));
    }
    let silent = record.files.iter().filter(|file| file.consumes && file.ticks == 0).count();
    if silent > 0 {
        report.note(format!("{silent} consuming processes recorded no `tick`: I9 cannot see what they waited for"));
    }
    let many = record.queues.all.iter().filter(|queue| queue.quiet.len() > accounting::SHEETS_MOST).count();
    if many > 0 {
        report.note(format!(
            "{many} queues have more than {} quiet readings: I12 compared the last of them",
            accounting::SHEETS_MOST
        ));
    }
    if report.totals.not_judged_for_loss > 0 {
        report.note(format!(
            "{} confirmed messages were not judged for loss: nobody saw empty the queue, dead-letter queue or expiry queue where they may be",
            report.totals.not_judged_for_loss
        ));
    }
}
