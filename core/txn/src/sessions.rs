//! The table of client sessions: what became of a commit whose reply was lost (`spec/transactions.md`, "A lost commit reply is
//! resolved, not guessed"). One for the broker, in shard 0: only a single place can say that a commit never was.
//!
//! A commit with a token is let in first ([`SessionInput::Admit`]), in parallel with the gathering of its parts, and reported when
//! it has ended. A question fences: what has not been let in by then never will be. A fence need not be durable, for what it
//! keeps out are commits of transactions that are open now, and those die with the process.
//!
//! Must not know: transactions' contents, connections.

use crate::ReplyTo;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use packhorse_model::{BrokerId, ClientSession, Token, TxnId};

/// Bounds of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionsConfig {
    /// The broker.
    pub broker: BrokerId,
    /// How long a session is remembered after its last use, ms of broker time.
    pub keep_ms: u64,
    /// How many are remembered; the store keeps as many.
    pub sessions_max: u32,
    /// Most gaps among the committed numbers of one session; beyond that the lowest are forgotten.
    pub gaps_max: u32,
}

impl SessionsConfig {
    /// The defaults.
    #[must_use]
    pub fn new(broker: BrokerId) -> SessionsConfig {
        SessionsConfig { broker, keep_ms: 600_000, sessions_max: 100_000, gaps_max: 1_000 }
    }
}

/// The answer to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TxStatus {
    /// It was committed.
    Committed,
    /// It was not, and never will be.
    RolledBack,
    /// It is another broker's.
    NotMine,
    /// The session, or so low a number of it, is forgotten.
    Expired,
}

/// All that can happen to the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionInput {
    /// A client names its session on a new connection: it is known from now on, commits or not.
    Open {
        /// The session.
        session: ClientSession,
        /// The number that its next commit will have. If the session is not known (any more), what became of lower ones is not.
        next: u64,
    },
    /// A home asks: may this be committed? Answer: [`SessionEffect::Admitted`].
    Admit {
        /// The transaction.
        txn: TxnId,
        /// The session.
        session: ClientSession,
        /// The commit's number.
        counter: u64,
    },
    /// What was let in has ended.
    Ended {
        /// The session.
        session: ClientSession,
        /// The commit's number.
        counter: u64,
        /// Durably, or else never.
        committed: bool,
    },
    /// A client asks. Answer: [`SessionEffect::Status`].
    Status {
        /// The asker.
        to: ReplyTo,
        /// The commit.
        token: Token,
    },
    /// What the store knows of a session; before everything else.
    Recovered {
        /// The session.
        session: ClientSession,
        /// Numbers below are forgotten.
        floor: u64,
        /// Runs of committed numbers, closed, ascending.
        runs: Vec<(u64, u64)>,
        /// Broker time of its last commit, ms.
        used_ms: u64,
    },
}

/// What the table wants from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEffect {
    /// To the transaction's home.
    Admitted {
        /// The transaction.
        txn: TxnId,
        /// It may.
        granted: bool,
    },
    /// In all shards: close connections of this session but the asker's.
    CloseOthers {
        /// The session.
        session: ClientSession,
        /// The asker.
        but: ReplyTo,
    },
    /// The answer.
    Status {
        /// The asker.
        to: ReplyTo,
        /// The answer.
        status: TxStatus,
    },
}

#[derive(Debug, Default)]
struct Session {
    /// Numbers below are forgotten.
    floor: u64,
    /// Committed: first to last of each run.
    runs: BTreeMap<u64, u64>,
    /// Let in, not ended.
    in_flight: BTreeSet<u64>,
    /// Numbers below may not be let in.
    fence: u64,
    /// Who asked, for what.
    asking: Vec<(ReplyTo, u64)>,
    used_ms: u64,
}

/// See the file's head.
#[derive(Debug)]
pub struct Sessions {
    config: SessionsConfig,
    sessions: BTreeMap<ClientSession, Session>,
    /// By last use.
    idle: BTreeSet<(u64, ClientSession)>,
}

impl Sessions {
    /// An empty table.
    #[must_use]
    pub fn new(config: SessionsConfig) -> Sessions {
        Sessions { config, sessions: BTreeMap::new(), idle: BTreeSet::new() }
    }

    /// Takes in what happened at this broker time.
    pub fn handle(&mut self, input: SessionInput, broker_ms: u64, out: &mut Vec<SessionEffect>) {
        self.expire(broker_ms);
        match input {
            SessionInput::Open { session, next } => drop(self.touch(session, next, broker_ms)),
            SessionInput::Admit { txn, session, counter } => {
                let s = self.touch(session, counter, broker_ms);
                let granted = counter >= s.fence && counter >= s.floor && !s.committed(counter);
                let granted = granted && s.in_flight.insert(counter);
                out.push(SessionEffect::Admitted { txn, granted });
            }
            SessionInput::Ended { session, counter, committed } => {
                let gaps_max = self.config.gaps_max;
                let s = self.touch(session, counter, broker_ms);
                s.in_flight.remove(&counter);
                if committed {
                    s.commit(counter, gaps_max);
                }
                s.answer(out);
            }
            SessionInput::Status { to, token } if token.broker != self.config.broker => {
                out.push(SessionEffect::Status { to, status: TxStatus::NotMine });
            }
            SessionInput::Status { to, token } => {
                out.push(SessionEffect::CloseOthers { session: token.session, but: to });
                let (known, next) = (self.sessions.contains_key(&token.session), token.counter.saturating_add(1));
                // Of a session that is not known what comes later is refused up to here as well.
                let s = self.touch(token.session, next, broker_ms);
                if !known {
                    out.push(SessionEffect::Status { to, status: TxStatus::Expired });
                    return;
                }
                s.fence = s.fence.max(next);
                s.asking.push((to, token.counter));
                s.answer(out);
            }
            SessionInput::Recovered { session, floor, runs, used_ms } => {
                self.touch(session, floor, used_ms).runs = runs.into_iter().collect();
            }
        }
    }

    /// How many are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    fn expire(&mut self, broker_ms: u64) {
        let mut busy = Vec::new();
        while let Some(&(used, session)) = self.idle.first() {
            let full = self.sessions.len() - busy.len() > self.config.sessions_max as usize;
            if used + self.config.keep_ms > broker_ms && !full {
                break;
            }
            self.idle.remove(&(used, session));
            if self.sessions.get(&session).is_some_and(|s| !s.in_flight.is_empty() || !s.asking.is_empty()) {
                busy.push((used, session));
            } else {
                self.sessions.remove(&session);
            }
        }
        self.idle.extend(busy);
    }

    /// The session is used. One that is not known may have been forgotten: nothing is said of its numbers below `floor`.
    fn touch(&mut self, session: ClientSession, floor: u64, broker_ms: u64) -> &mut Session {
        let s = self.sessions.entry(session).or_insert_with(|| Session { floor, ..Session::default() });
        self.idle.remove(&(s.used_ms, session));
        s.used_ms = s.used_ms.max(broker_ms);
        self.idle.insert((s.used_ms, session));
        s
    }
}

impl Session {
    fn committed(&self, counter: u64) -> bool {
        self.runs.range(..=counter).next_back().is_some_and(|(_, last)| counter <= *last)
    }

    fn commit(&mut self, counter: u64, gaps_max: u32) {
        if self.committed(counter) {
            return;
        }
        let first = match self.runs.range(..counter).next_back() {
            Some((&first, &last)) if last + 1 == counter => first,
            _ => counter,
        };
        let last = counter.checked_add(1).and_then(|next| self.runs.remove(&next)).unwrap_or(counter);
        self.runs.insert(first, last);
        while self.runs.len() > gaps_max as usize + 1 {
            let Some((_, last)) = self.runs.pop_first() else { break };
            self.floor = self.floor.max(last.saturating_add(1));
        }
    }

    /// Answers when nothing that was let in is open any more.
    fn answer(&mut self, out: &mut Vec<SessionEffect>) {
        if !self.in_flight.is_empty() {
            return;
        }
        for (to, counter) in core::mem::take(&mut self.asking) {
            let status = if self.committed(counter) {
                TxStatus::Committed
            } else if counter < self.floor {
                TxStatus::Expired
            } else {
                TxStatus::RolledBack
            };
            out.push(SessionEffect::Status { to, status });
        }
    }
}
