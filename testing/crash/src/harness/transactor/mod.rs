//! Clients of a run that work in transactions, beside its producers and consumers and on the same queues, over all lives of the broker:
//! with local ones ([`Local`]), and as managers of branches ([`Manager`]).

mod local;
mod manager;
mod station;

use super::options::ClientOptions;
use super::orders;
use local::Local;
use manager::Manager;
use station::{End, Station};
use std::time::Duration;

/// Between two attempts to connect.
const RETRY: Duration = Duration::from_millis(3);

/// What such a client does, connection after connection.
trait Work {
    /// Works on a connection of its own until it is told to end; then all of its transactions are over, and the connection is closed.
    fn connection(&mut self, station: &mut Station<'_>) -> Result<(), End>;

    /// The connection is gone: what is noted down of what had no answer.
    fn lost(&mut self, station: &mut Station<'_>) -> Result<(), String>;
}

/// A client with local transactions. Err: it cannot go on, or what became of a commit is not known where it must be; a sentence.
pub fn transact(options: &ClientOptions) -> Result<(), String> {
    run(options, "transactor", &mut Local::new(options))
}

/// A manager of branches. Err: it cannot go on, or what the broker says is in doubt is not what it was told; a sentence.
pub fn manage(options: &ClientOptions) -> Result<(), String> {
    run(options, "manager", &mut Manager::new(options))
}

fn run(options: &ClientOptions, role: &str, work: &mut dyn Work) -> Result<(), String> {
    let mut station = Station::begin(options, role)?;
    loop {
        match work.connection(&mut station) {
            Ok(()) => return station.end(),
            Err(End::Failed(why)) => return Err(why),
            Err(End::Lost) => {
                work.lost(&mut station)?;
                station.lost()?;
                orders::wait(RETRY);
            }
        }
    }
}
