//! A client with local transactions. Most of its commits have a name; of one whose answer was lost it asks what became of it before it
//! does anything else.

use super::super::options::ClientOptions;
use super::Work;
use super::station::{End, Open, Said, Station};
use packhorse_client_core::Commits;
use packhorse_client_core::codec::Discharge;
use packhorse_client_core::transaction::{Request, TxCommit, TxOutcome, TxStatus};
use packhorse_history::Event;

/// See the module.
pub(super) struct Local {
    /// Its session over all connections, and the number of its next commit.
    session: [u8; 16],
    next: u64,
    /// The broker has told of a commit under that name.
    known: bool,
    /// A commit that was asked for, with its number if it has a name.
    asked: Option<(u64, Option<u64>)>,
    /// A commit whose answer was lost, with its number.
    unknown: Option<(u64, u64)>,
}

impl Local {
    pub(super) fn new(options: &ClientOptions) -> Local {
        let mut session = [0; 16];
        session[..8].copy_from_slice(&options.run.to_be_bytes());
        session[8..12].copy_from_slice(&options.number.to_be_bytes());
        session[15] = 2;
        Local { session, next: 1, known: false, asked: None, unknown: None }
    }

    /// What became of the commit whose answer was lost.
    fn resolve(&mut self, station: &mut Station<'_>, open: &mut Open) -> Result<(), End> {
        let Some((tx, counter)) = self.unknown else { return Ok(()) };
        let (broker, session) = (open.broker()?, self.session);
        let said = station.ask(open, &Request::TxStatus(TxStatus { broker, session, counter }))?;
        let told = match said {
            Said::Status(TxOutcome::Committed) => Some(Event::CommitOk { tx }),
            Said::Status(TxOutcome::RolledBack) => Some(Event::RollbackOk { tx }),
            // A session whose first commit the broker did not survive is unknown to the next one.
            Said::Status(TxOutcome::Expired) if !self.known => None,
            said => {
                station.found(format!("what became of commit {counter} of transaction {tx}: {said:?}"));
                None
            }
        };
        self.known |= said_committed(told.as_ref());
        self.unknown = None;
        told.map_or(Ok(()), |event| station.put(&event)).map_err(End::Failed)
    }

    fn transaction(&mut self, station: &mut Station<'_>, open: &mut Open) -> Result<(), End> {
        let tx = station.begins(|_| None).map_err(End::Failed)?;
        station.show(1).map_err(End::Failed)?;
        let txn = match station.ask(open, &Request::Declare)? {
            Said::Declared(txn) => txn,
            said => return Err(End::Failed(format!("{said:?} to a declare"))),
        };
        station.work(open, &txn, tx)?;
        match station.random.below(100) {
            0..=74 => self.commit(station, open, &txn, tx)?,
            75..=94 => {
                let said = station.ask(open, &Request::Discharge(Discharge { txn_id: &txn, fail: true }))?;
                if said != Said::Accepted {
                    return Err(End::Failed(format!("{said:?} to a rollback")));
                }
                station.put(&Event::RollbackOk { tx }).map_err(End::Failed)?;
            }
            // The end of everything is a rollback.
            _ => {
                station.close(open)?;
                return Err(End::Lost);
            }
        }
        station.is_over();
        station.show(0).map_err(End::Failed)
    }

    fn commit(&mut self, station: &mut Station<'_>, open: &mut Open, txn: &[u8], tx: u64) -> Result<(), End> {
        let named = (station.random.below(4) > 0).then_some(self.next);
        station.put(&Event::CommitSent { tx }).map_err(End::Failed)?;
        self.asked = Some((tx, named));
        let said = match named {
            Some(counter) => {
                self.next += 1;
                let (broker, session) = (open.broker()?, self.session);
                station.ask(open, &Request::TxCommit(TxCommit { txn_id: txn, broker, session, counter }))?
            }
            None => station.ask(open, &Request::Discharge(Discharge { txn_id: txn, fail: false }))?,
        };
        self.asked = None;
        let told = match said {
            Said::Accepted => Event::CommitOk { tx },
            Said::Rejected(why) if why.starts_with("amqp:transaction:") => Event::RollbackOk { tx },
            said => return Err(End::Failed(format!("{said:?} to a commit"))),
        };
        self.known |= named.is_some() && said_committed(Some(&told));
        station.put(&told).map_err(End::Failed)
    }
}

fn said_committed(told: Option<&Event<'_>>) -> bool {
    matches!(told, Some(Event::CommitOk { .. }))
}

impl Work for Local {
    fn connection(&mut self, station: &mut Station<'_>) -> Result<(), End> {
        let mut open = station.connect(Some(Commits { session: self.session, next: self.next }), false)?;
        self.resolve(station, &mut open)?;
        while !station.is_told_to_end() {
            self.transaction(station, &mut open)?;
            station.turn(&mut open)?;
        }
        station.leave(&mut open)
    }

    fn lost(&mut self, station: &mut Station<'_>) -> Result<(), String> {
        station.show(0)?;
        let Some((tx, named)) = self.asked.take() else { return Ok(()) };
        self.unknown = named.map(|counter| (tx, counter));
        station.put(&Event::CommitUnknown { tx })
    }
}
