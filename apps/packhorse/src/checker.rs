//! `packhorse checker FILE…`: opens the histories of a run and says what the checker found.
//!
//! Judges nothing itself: `core/history` does.

use crate::End;
use packhorse_history::{Options, check_files};
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

/// Judges the files as one history: exit 0 no violation, 1 violations, 2 a file cannot be read as a history.
pub(crate) fn run(files: &[PathBuf], json: bool) -> End {
    let mut sources = Vec::with_capacity(files.len());
    for path in files {
        match File::open(path) {
            Ok(file) => sources.push((path.display().to_string(), BufReader::with_capacity(1 << 20, file))),
            Err(error) => return End::Usage(format!("{}: {error}", path.display())),
        }
    }
    let report = match check_files(sources, &Options::default()) {
        Ok(report) => report,
        Err(error) => return End::Usage(error.to_string()),
    };
    if json {
        println!("{}", report.to_json());
    } else {
        println!("{report}");
    }
    if report.is_clean() { End::Done } else { End::Code(1) }
}
