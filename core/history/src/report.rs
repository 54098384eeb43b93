//! What a check came to: violations, what was looked at, what could not be judged. For people (`Display`) and as JSON.
//!
//! Must not know: how violations are found.

use crate::event::MessageId;
use crate::jsonl::put_json_string;
use std::fmt;

/// The invariants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// I1: confirmed, and nowhere in the end.
    Lost,
    /// I2: received though never sent, or not as it was sent.
    Phantom,
    /// I3: again after a confirmed acknowledgement.
    Duplicate,
    /// I4: twice, and the second time as if it were the first.
    SilentDuplicate,
    /// I5: first deliveries out of the order of sending.
    Order,
    /// I6: half of a transaction.
    Atomicity,
    /// I7: a prepared branch that is not kept as it is until it is decided.
    Prepared,
    /// I8: not exactly once over all brokers.
    Place,
    /// I9: ready, wanted, and not delivered.
    Stuck,
    /// I10: a delivery count or flag went down.
    Counts,
    /// I11: more of something than settings allow.
    Bounds,
    /// I12: the broker's counters are not what clients saw.
    Accounting,
}

impl Invariant {
    /// All of them, in order.
    pub const ALL: [Invariant; 12] = [
        Invariant::Lost,
        Invariant::Phantom,
        Invariant::Duplicate,
        Invariant::SilentDuplicate,
        Invariant::Order,
        Invariant::Atomicity,
        Invariant::Prepared,
        Invariant::Place,
        Invariant::Stuck,
        Invariant::Counts,
        Invariant::Bounds,
        Invariant::Accounting,
    ];

    /// `I1` to `I12`.
    pub fn code(self) -> &'static str {
        match self {
            Invariant::Lost => "I1",
            Invariant::Phantom => "I2",
            Invariant::Duplicate => "I3",
            Invariant::SilentDuplicate => "I4",
            Invariant::Order => "I5",
            Invariant::Atomicity => "I6",
            Invariant::Prepared => "I7",
            Invariant::Place => "I8",
            Invariant::Stuck => "I9",
            Invariant::Counts => "I10",
            Invariant::Bounds => "I11",
            Invariant::Accounting => "I12",
        }
    }

    /// Its name in a few words.
    pub fn title(self) -> &'static str {
        match self {
            Invariant::Lost => "lost",
            Invariant::Phantom => "phantom",
            Invariant::Duplicate => "duplicate after a confirmed acknowledgement",
            Invariant::SilentDuplicate => "silent duplicate",
            Invariant::Order => "order",
            Invariant::Atomicity => "atomicity",
            Invariant::Prepared => "prepared",
            Invariant::Place => "single place",
            Invariant::Stuck => "stuck",
            Invariant::Counts => "counts",
            Invariant::Bounds => "bounds",
            Invariant::Accounting => "accounting",
        }
    }

    fn index(self) -> usize {
        self as usize
    }
}

/// Where in the files something stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// What it is: `sent`, `confirmed`, `received` …
    pub what: &'static str,
    /// The file's name.
    pub file: String,
    /// Its line, from 1.
    pub line: u64,
}

/// One broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// Of which message, if it is about one.
    pub message: Option<MessageId>,
    /// In which queue, if that is known.
    pub queue: Option<String>,
    /// The events that show it.
    pub events: Vec<Evidence>,
    /// What happened, in one sentence.
    pub sentence: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}:", self.invariant.code(), self.invariant.title())?;
        if let Some(message) = self.message {
            write!(f, " message {message}")?;
        }
        if let Some(queue) = &self.queue {
            write!(f, "{} queue {queue}", if self.message.is_some() { "," } else { "" })?;
        }
        write!(f, ": {}", self.sentence)?;
        for event in &self.events {
            write!(f, "\n      {} {}:{}", event.what, event.file, event.line)?;
        }
        Ok(())
    }
}

/// How much was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Files read.
    pub files: u64,
    /// Events in them.
    pub events: u64,
    /// Messages sent.
    pub sent: u64,
    /// Of those, confirmed.
    pub confirmed: u64,
    /// Of those, refused.
    pub refused: u64,
    /// Of those, sent in transactions that were not committed.
    pub rolled_back: u64,
    /// Of those, without an answer.
    pub unknown: u64,
    /// Deliveries seen.
    pub received: u64,
    /// Acknowledgements sent.
    pub acknowledged: u64,
    /// Of those, with an answer.
    pub acknowledged_confirmed: u64,
    /// Messages found in dead-letter queues.
    pub dead_lettered: u64,
    /// Messages found in expiry queues.
    pub expired: u64,
    /// Transactions begun, and branches of distributed ones.
    pub transactions: u64,
    /// Of those, committed as somebody was told.
    pub transactions_committed: u64,
    /// Of those, asked to commit, and nobody was told what became of that.
    pub transactions_unknown: u64,
    /// Times that the broker was killed or ended.
    pub broker_ends: u64,
    /// Confirmed messages that I1 could not judge, because nobody saw where they could be come to an end.
    pub not_judged_for_loss: u64,
}

/// What a check came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How much was looked at.
    pub totals: Totals,
    counts: [u64; Invariant::ALL.len()],
    judged: [u64; Invariant::ALL.len()],
    violations: Vec<Violation>,
    notes: Vec<String>,
    shown_most: u64,
}

impl Report {
    pub(crate) fn new(shown_most: u64) -> Report {
        Report { shown_most, ..Report::default() }
    }

    /// How many violations there are of one invariant, or more exactly of messages, queues and times that break it.
    pub fn count(&self, invariant: Invariant) -> u64 {
        self.counts[invariant.index()]
    }

    /// All violations.
    pub fn violation_count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How much there was to judge: I1 confirmed persistent messages whose end is known or was looked for in vain, I2 deliveries, I3
    /// answered acknowledgements, I4 and I10 messages that came more than once, I5 messages that came, I6
    /// transactions in which something was done, I7 prepared branches and lists of them, I9 ticks of consuming
    /// processes, I12 quiet readings. A check with nothing to judge is blind.
    pub fn judged(&self, invariant: Invariant) -> u64 {
        self.judged[invariant.index()]
    }

    /// Whether nothing is broken.
    pub fn is_clean(&self) -> bool {
        self.violation_count() == 0
    }

    /// The first violations of each invariant, up to `Options::shown_most`.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// What could not be judged, and why.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Counts a violation; `make` is called if it will be shown.
    pub(crate) fn add(&mut self, invariant: Invariant, make: impl FnOnce() -> Violation) {
        let count = &mut self.counts[invariant.index()];
        *count += 1;
        if *count <= self.shown_most {
            self.violations.push(make());
        }
    }

    pub(crate) fn looked_at(&mut self, invariant: Invariant, more: u64) {
        self.judged[invariant.index()] += more;
    }

    pub(crate) fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    pub(crate) fn sort(&mut self) {
        self.violations.sort_by_key(|violation| violation.invariant);
    }

    /// The report as one JSON object: `violations_total`, `invariants` and `judged` (code → count), `totals`, `violations`, `notes`.
    pub fn to_json(&self) -> String {
        let mut json = Json { out: Vec::new(), first: true };
        json.open(b'{');
        json.number("violations_total", self.violation_count());
        json.key("invariants");
        json.open(b'{');
        for invariant in Invariant::ALL {
            json.number(invariant.code(), self.count(invariant));
        }
        json.close(b'}');
        json.key("judged");
        json.open(b'{');
        for invariant in Invariant::ALL {
            json.number(invariant.code(), self.judged(invariant));
        }
        json.close(b'}');
        json.key("totals");
        json.open(b'{');
        for (name, _, number) in self.totals.rows() {
            json.number(name, number);
        }
        json.close(b'}');
        json.key("violations");
        json.open(b'[');
        for violation in &self.violations {
            json.violation(violation);
        }
        json.close(b']');
        json.key("notes");
        json.open(b'[');
        for note in &self.notes {
            json.comma();
            put_json_string(&mut json.out, note);
        }
        json.close(b']');
        json.close(b'}');
        String::from_utf8_lossy(&json.out).into_owned()
    }
}

impl Totals {
    fn rows(&self) -> [(&'static str, &'static str, u64); 17] {
        [
            ("files", "files", self.files),
            ("events", "events", self.events),
            ("sent", "sent", self.sent),
            ("confirmed", "confirmed", self.confirmed),
            ("refused", "refused", self.refused),
            ("rolled_back", "sent in transactions that were not committed", self.rolled_back),
            ("unknown", "without an answer", self.unknown),
            ("received", "deliveries", self.received),
            ("acknowledged", "acknowledged", self.acknowledged),
            ("acknowledged_confirmed", "acknowledged, with an answer", self.acknowledged_confirmed),
            ("dead_lettered", "dead letters", self.dead_lettered),
            ("expired", "expired", self.expired),
            ("transactions", "transactions", self.transactions),
            ("transactions_committed", "transactions committed", self.transactions_committed),
            ("transactions_unknown", "transactions without an answer", self.transactions_unknown),
            ("broker_ends", "ends of the broker", self.broker_ends),
            ("not_judged_for_loss", "confirmed, not judged for loss", self.not_judged_for_loss),
        ]
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (_, what, number) in self.totals.rows() {
            writeln!(f, "{number:>12}  {what}")?;
        }
        for invariant in Invariant::ALL {
            let count = self.count(invariant);
            let judged = self.judged(invariant);
            writeln!(f, "{:>12}  {:<3} {}, of {judged}", count, invariant.code(), invariant.title())?;
        }
        for violation in &self.violations {
            writeln!(f, "  {violation}")?;
        }
        if (self.violations.len() as u64) < self.violation_count() {
            writeln!(f, "  … and {} more", self.violation_count() - self.violations.len() as u64)?;
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        match self.violation_count() {
            0 => f.write_str("no violation"),
            1 => f.write_str("1 VIOLATION"),
            count => write!(f, "{count} VIOLATIONS"),
        }
    }
}

/// Just enough JSON: objects, lists, numbers, strings.
struct Json {
    out: Vec<u8>,
    first: bool,
}

impl Json {
    fn comma(&mut self) {
        if !self.first {
            self.out.push(b',');
        }
        self.first = false;
    }

    fn open(&mut self, bracket: u8) {
        self.out.push(bracket);
        self.first = true;
    }

    fn close(&mut self, bracket: u8) {
        self.out.push(bracket);
        self.first = false;
    }

    fn key(&mut self, key: &str) {
        self.comma();
        put_json_string(&mut self.out, key);
        self.out.push(b':');
    }

    fn number(&mut self, key: &str, number: u64) {
        self.key(key);
        self.out.extend_from_slice(number.to_string().as_bytes());
    }

    fn text(&mut self, key: &str, text: &str) {
        self.key(key);
        put_json_string(&mut self.out, text);
    }

    fn violation(&mut self, violation: &Violation) {
        self.comma();
        self.open(b'{');
        self.text("invariant", violation.invariant.code());
        if let Some(message) = violation.message {
            self.number("producer", u64::from(message.producer));
            self.number("sequence", message.sequence);
        }
        if let Some(queue) = &violation.queue {
            self.text("queue", queue);
        }
        self.text("sentence", &violation.sentence);
        self.key("events");
        self.open(b'[');
        for event in &violation.events {
            self.comma();
            self.open(b'{');
            self.text("what", event.what);
            self.text("file", &event.file);
            self.number("line", event.line);
            self.close(b'}');
        }
        self.close(b']');
        self.close(b'}');
    }
}
