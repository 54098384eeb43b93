//! The table of client sessions by itself: gaps, bounds, fences.

use packhorse_model::{BrokerId, ClientSession, ConnectionId, ShardId, Token, TxnId};
use packhorse_txn::{Control, ReplyTo, SessionEffect, SessionInput, Sessions, SessionsConfig, TxStatus};

const BROKER: BrokerId = BrokerId([1; 16]);

struct Table {
    table: Sessions,
    ms: u64,
}

impl Table {
    fn new(change: impl FnOnce(&mut SessionsConfig)) -> Table {
        let mut config = SessionsConfig::new(BROKER);
        change(&mut config);
        Table { table: Sessions::new(config), ms: 0 }
    }

    fn handle(&mut self, input: SessionInput) -> Vec<SessionEffect> {
        let mut out = Vec::new();
        self.table.handle(input, self.ms, &mut out);
        out
    }

    fn admit(&mut self, session: u8, counter: u64) -> bool {
        let txn = TxnId { run: 1, number: counter, home: ShardId(1) };
        match self.handle(SessionInput::Admit { txn, session: ClientSession([session; 16]), counter })[..] {
            [SessionEffect::Admitted { txn: same, granted }] if same == txn => granted,
            ref other => panic!("to one admission the table answers once, about that transaction; it said {other:?}"),
        }
    }

    fn open(&mut self, session: u8, next: u64) {
        let effects = self.handle(SessionInput::Open { session: ClientSession([session; 16]), next });
        assert!(effects.is_empty(), "nobody is asked anything when a session is named: {effects:?}");
    }

    fn end(&mut self, session: u8, counter: u64, committed: bool) -> Vec<SessionEffect> {
        self.handle(SessionInput::Ended { session: ClientSession([session; 16]), counter, committed })
    }

    fn commit(&mut self, session: u8, counter: u64) {
        assert!(self.admit(session, counter));
        self.end(session, counter, true);
    }

    fn status_of(&mut self, broker: BrokerId, session: u8, counter: u64) -> Option<TxStatus> {
        let control = Control { connection: ConnectionId(1), number: 0, shard: ShardId(0) };
        let to = ReplyTo { control, question: 1 };
        let token = Token { broker, session: ClientSession([session; 16]), counter };
        let effects = self.handle(SessionInput::Status { to, token });
        status(&effects)
    }

    fn status(&mut self, session: u8, counter: u64) -> Option<TxStatus> {
        self.status_of(BROKER, session, counter)
    }
}

fn status(effects: &[SessionEffect]) -> Option<TxStatus> {
    effects.iter().find_map(|effect| match effect {
        SessionEffect::Status { status, .. } => Some(*status),
        _ => None,
    })
}

#[test]
fn numbers_commit_in_any_order_and_gaps_are_known() {
    let mut table = Table::new(|_| {});
    table.open(1, 1);
    for counter in [5, 3, 4, 9, 1] {
        table.commit(1, counter);
    }
    assert!(!table.admit(1, 4), "a number commits once");
    for counter in 1..=10 {
        let committed = [1, 3, 4, 5, 9].contains(&counter);
        let expected = if committed { TxStatus::Committed } else { TxStatus::RolledBack };
        assert_eq!(table.status(1, counter), Some(expected), "{counter}");
    }
    assert!(!table.admit(1, 2) && !table.admit(1, 10), "what was asked about does not commit any more");
    table.commit(1, 11);
}

#[test]
fn commits_in_flight_are_awaited_others_are_fenced() {
    let mut table = Table::new(|_| {});
    table.open(1, 1);
    assert!(table.admit(1, 7) && table.admit(1, 8));
    assert!(!table.admit(1, 7), "two transactions with one number");
    assert_eq!(table.status(1, 8), None);
    assert!(!table.admit(1, 6));
    assert_eq!(status(&table.end(1, 7, true)), None);
    assert_eq!(status(&table.end(1, 8, false)), Some(TxStatus::RolledBack));
    assert_eq!(table.status(1, 7), Some(TxStatus::Committed));
}

#[test]
fn what_is_not_known_is_not_guessed() {
    let mut table = Table::new(|_| {});
    assert_eq!(table.status_of(BrokerId([2; 16]), 1, 1), Some(TxStatus::NotMine));
    assert_eq!(table.status(1, 4), Some(TxStatus::Expired));
    assert!(!table.admit(1, 4), "and can never become true behind the asker's back");
    assert_eq!(table.status(1, 4), Some(TxStatus::Expired));
    table.commit(1, 5);
    assert_eq!(table.status(1, 5), Some(TxStatus::Committed));
}

#[test]
fn a_session_that_was_forgotten_and_comes_again_does_not_deny_what_it_committed() {
    let mut table = Table::new(|_| {});
    table.open(1, 1);
    assert_eq!(table.status(1, 1), Some(TxStatus::RolledBack), "it is known, and this was never let in");
    table.commit(1, 3);
    table.open(1, 4);
    assert_eq!(table.status(1, 3), Some(TxStatus::Committed), "a second connection changes nothing");
    // It is named again: its client asks what became of a commit of long ago.
    table.ms += 600_000;
    table.open(1, 4);
    assert_eq!(table.status(1, 3), Some(TxStatus::Expired));
    table.commit(1, 4);
    // Or it commits again, on a connection that was quiet for that long.
    table.ms += 600_000;
    table.commit(1, 8);
    assert_eq!(table.status(1, 4), Some(TxStatus::Expired));
    assert_eq!(table.status(1, 8), Some(TxStatus::Committed));
    assert_eq!(table.status(1, 9), Some(TxStatus::RolledBack));
}

#[test]
fn it_is_bounded_in_time_sessions_and_gaps() {
    let mut table = Table::new(|config| (config.sessions_max, config.gaps_max) = (2, 1));
    table.commit(1, 1);
    table.ms = 599_999;
    assert_eq!(table.status(1, 1), Some(TxStatus::Committed));
    table.ms += 600_000;
    assert_eq!(table.status(1, 1), Some(TxStatus::Expired), "ten minutes after its last use");
    for counter in [1, 3, 5] {
        table.commit(2, counter);
    }
    // Three runs are one too many: the lowest is forgotten, and what lies below it.
    assert_eq!(table.status(2, 1), Some(TxStatus::Expired));
    let known: Vec<_> = (2..=5).map(|counter| table.status(2, counter)).collect();
    let (committed, rolled_back) = (Some(TxStatus::Committed), Some(TxStatus::RolledBack));
    assert_eq!(known, [rolled_back, committed, rolled_back, committed]);
    for session in 3..=9 {
        table.ms += 1;
        table.commit(session, 1);
        assert!(table.table.len() <= 3, "the newest and as many as allowed");
    }
    assert_eq!(table.status(9, 1), Some(TxStatus::Committed));
    assert_eq!(table.status(2, 5), Some(TxStatus::Expired));
    // One with a commit in flight is not forgotten.
    assert!(table.admit(20, 1));
    for session in 21..=25 {
        table.ms += 1;
        table.commit(session, 1);
    }
    table.ms += 1_000_000;
    table.end(20, 1, true);
    assert_eq!(table.status(20, 1), Some(TxStatus::Committed));
}
