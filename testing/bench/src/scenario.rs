//! The scenarios: what is sent how, and what is looked at. Numbers and names are those of the report.

/// How fast producers send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rate {
    /// As fast as their windows allow.
    Window,
    /// So many a second, on schedule.
    Fixed(f64),
    /// This share of what the best peer reached in B2 with 1 KiB in the same run; of ours if there is no peer.
    ShareOfBest(f64),
}

/// Who does what to messages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Work {
    /// Producers send them, consumers take them.
    Pipe,
    /// Workers take them from one queue and send them to another, `batch` at a time; `scenario` is the load generator's word for how.
    Move { scenario: &'static str, batch: u32 },
    /// As many branches are prepared, the broker is killed, and asked for them after its start.
    Recover { branches: u32, batch: u32 },
}

/// One measurement of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Case {
    /// B1 to B6.
    pub(crate) scenario: &'static str,
    /// Its own name: scenario and what differs.
    pub(crate) name: &'static str,
    /// For people.
    pub(crate) what: &'static str,
    pub(crate) work: Work,
    pub(crate) connections: u32,
    /// Queues; where workers move messages, as many workers.
    pub(crate) queues: u32,
    pub(crate) window: u32,
    pub(crate) size: usize,
    pub(crate) rate: Rate,
    pub(crate) seconds: f64,
    /// Consumers come when the producers are done, so that only sending is measured.
    pub(crate) drain_after: bool,
}

/// Credit of a consumer in all scenarios.
pub(crate) const CREDIT: u32 = 1000;

/// Credit of a worker that moves a message in each branch.
const BRANCH_CREDIT: u32 = 50;

/// The cases of B5, whose ratio is looked at, and those of B6.
pub(crate) const MOVE_PLAIN: &str = "B5-plain";
pub(crate) const MOVE_TX: &str = "B5-tx";
pub(crate) const BRANCHES: &str = "B6-xa";
pub(crate) const RECOVER: &str = "B6-recover";

/// The word for B5 and B6 together.
const TX: &str = "tx";

/// The case whose rate B4 takes as its measure.
pub(crate) const PIPE_1K: &str = "B2-1k";

const ONE: Case = Case {
    scenario: "",
    name: "",
    what: "",
    work: Work::Pipe,
    connections: 1,
    queues: 1,
    window: 1024,
    size: 1024,
    rate: Rate::Window,
    seconds: 15.0,
    drain_after: false,
};

const CASES: &[Case] = &[
    Case {
        scenario: "B1",
        name: "B1",
        what: "1 producer, 1 message in flight, 1 KiB",
        window: 1,
        seconds: 30.0,
        drain_after: true,
        ..ONE
    },
    Case {
        scenario: "B2",
        name: "B2-16b",
        what: "1 producer with 1,024 in flight, 1 consumer with credit 1,000, 16 bytes",
        size: 16,
        ..ONE
    },
    Case {
        scenario: "B2",
        name: PIPE_1K,
        what: "1 producer with 1,024 in flight, 1 consumer with credit 1,000, 1 KiB",
        ..ONE
    },
    Case {
        scenario: "B2",
        name: "B2-256",
        what: "1 producer with 256 in flight, 1 consumer with credit 1,000, 1 KiB",
        window: 256,
        ..ONE
    },
    Case {
        scenario: "B2",
        name: "B2-64k",
        what: "1 producer with 1,024 in flight, 1 consumer with credit 1,000, 64 KiB",
        size: 64 << 10,
        ..ONE
    },
    Case {
        scenario: "B3",
        name: "B3",
        what: "64 producers with 1 in flight each, 8 queues, 8 consumers, 1 KiB",
        connections: 64,
        queues: 8,
        window: 1,
        ..ONE
    },
    Case {
        scenario: "B4",
        name: "B4-2k",
        what: "2,000 messages a second on schedule, 1 KiB",
        window: 16_384,
        rate: Rate::Fixed(2000.0),
        seconds: 60.0,
        ..ONE
    },
    Case {
        scenario: "B4",
        name: "B4-5k",
        what: "5,000 messages a second on schedule, 1 KiB",
        window: 16_384,
        rate: Rate::Fixed(5000.0),
        seconds: 60.0,
        ..ONE
    },
    Case {
        scenario: "B4",
        name: "B4-half",
        what: "half of what the best peer reached in B2, on schedule, 1 KiB",
        window: 16_384,
        rate: Rate::ShareOfBest(0.5),
        seconds: 60.0,
        ..ONE
    },
    Case {
        scenario: "B5",
        name: MOVE_PLAIN,
        what: "8 sessions move messages of 1 KiB from queue to queue without transactions, each with 100 in flight",
        work: Work::Move { scenario: "transform", batch: 100 },
        connections: 2,
        queues: 8,
        ..ONE
    },
    Case {
        scenario: "B5",
        name: MOVE_TX,
        what: "8 sessions move messages of 1 KiB from queue to queue, 100 received and 100 sent in a local transaction",
        work: Work::Move { scenario: "local-tx", batch: 100 },
        connections: 2,
        queues: 8,
        ..ONE
    },
    Case {
        scenario: "B6",
        name: BRANCHES,
        what: "64 branches of XA in parallel, in each a message of 1 KiB is received and sent on: start, end, prepare, commit",
        work: Work::Move { scenario: "xa", batch: 1 },
        connections: 8,
        queues: 64,
        ..ONE
    },
    Case {
        scenario: "B6",
        name: "B6-xa-10",
        what: "16 branches of XA in parallel, in each 10 messages of 1 KiB are received and sent on",
        work: Work::Move { scenario: "xa", batch: 10 },
        connections: 4,
        queues: 16,
        ..ONE
    },
    Case {
        scenario: "B6",
        name: RECOVER,
        what: "1,000 branches are prepared, 10 messages in and 10 out in each; kill -9; from the start of the process to the whole answer of recover",
        work: Work::Recover { branches: 1000, batch: 10 },
        connections: 4,
        queues: 16,
        ..ONE
    },
];

/// The cases of these scenarios, or single ones by name, in the order of the report.
pub(crate) fn cases(wanted: &[String]) -> Result<Vec<Case>, String> {
    let known = |word: &String| CASES.iter().any(|case| names(case, word));
    if let Some(unknown) = wanted.iter().find(|word| !known(word)) {
        let all: Vec<&str> = CASES.iter().map(|case| case.name).collect();
        return Err(format!(
            "there is no scenario `{unknown}`; there are B1 to B6, tx for B5 and B6, with the cases {}",
            all.join(", ")
        ));
    }
    Ok(CASES.iter().filter(|case| wanted.iter().any(|word| names(case, word))).cloned().collect())
}

fn names(case: &Case, word: &str) -> bool {
    word.eq_ignore_ascii_case(case.scenario)
        || word.eq_ignore_ascii_case(case.name)
        || (word == TX && case.transacted())
}

impl Case {
    /// Whether it is about transactions, which have a report of their own.
    pub(crate) fn transacted(&self) -> bool {
        self.work != Work::Pipe
    }

    /// Whether no peer can take part: XA is not in the standard's transactions.
    pub(crate) fn ours_only(&self) -> bool {
        matches!(self.work, Work::Move { scenario: "xa", .. } | Work::Recover { .. })
    }

    /// What `packhorse bench` is told where workers move messages.
    pub(crate) fn moving(&self, scenario: &str, batch: u32, run: u64) -> Vec<String> {
        let credit = if batch < 100 { BRANCH_CREDIT } else { CREDIT };
        vec![
            format!("--scenario={scenario}"),
            format!("--connections={}", self.connections),
            format!("--workers={}", self.queues),
            format!("--batch={batch}"),
            format!("--credit={credit}"),
            format!("--size={}", self.size),
            format!("--run={run}"),
        ]
    }

    /// What `packhorse bench` is told on both sides.
    pub(crate) fn arguments(&self, rate: Option<f64>, run: u64, times: &Times) -> Vec<String> {
        if let Work::Move { scenario, batch } = self.work {
            let mut words = self.moving(scenario, batch, run);
            words.extend(times.arguments());
            return words;
        }
        let mut words = vec![
            format!("--connections={}", self.connections),
            format!("--consumers={}", self.queues),
            format!("--window={}", self.window),
            format!("--credit={CREDIT}"),
            format!("--size={}", self.size),
            format!("--run={run}"),
        ];
        words.extend(times.arguments());
        words.extend(rate.map(|rate| format!("--rate={rate:.1}")));
        words
    }
}

/// Seconds of the parts of one measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Times {
    pub(crate) warm_up: f64,
    pub(crate) measured: f64,
    /// After that, while system calls are counted.
    pub(crate) cooldown: f64,
}

impl Times {
    fn arguments(&self) -> [String; 3] {
        [
            format!("--warmup={}", self.warm_up),
            format!("--time={}", self.measured),
            format!("--cooldown={}", self.cooldown),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_and_cases_are_found_by_name_in_the_order_of_the_report() {
        let names = |words: &[&str]| -> Vec<&str> {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            cases(&words).unwrap().iter().map(|case| case.name).collect()
        };
        assert_eq!(names(&["B3", "b2"]), ["B2-16b", "B2-1k", "B2-256", "B2-64k", "B3"]);
        assert_eq!(names(&["B2-1K", "B1"]), ["B1", "B2-1k"]);
        assert_eq!(names(&["tx"]), ["B5-plain", "B5-tx", "B6-xa", "B6-xa-10", "B6-recover"]);
        assert!(cases(&["B9".to_string()]).unwrap_err().contains("B9"));
    }
}
