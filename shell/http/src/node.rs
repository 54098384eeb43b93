//! What the process knows of itself beside its shards: version, age, phase, configuration.

use std::sync::Mutex;
use std::time::Instant;

/// Where the process is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Reading the journal; listeners of AMQP are closed.
    Recovering,
    /// Serving.
    Ready,
    /// Ending in order.
    Stopping,
    /// The store has failed, in these words; the process is about to end.
    Failed(String),
}

/// Facts about the process. Shared; only the phase changes.
pub struct Node {
    /// The broker's name (`broker.name`).
    pub name: String,
    /// An id of the broker's data directory, stable over restarts; `None` until the store is open.
    broker_id: Mutex<Option<String>>,
    /// When the process began to serve.
    pub started: Instant,
    /// The document of `/api/v1/config`.
    pub config: serde_json::Value,
    phase: Mutex<Phase>,
    #[cfg(feature = "failpoints")]
    failpoints: Mutex<Option<std::sync::Arc<dyn crate::Failpoints>>>,
}

impl Node {
    /// A node that is recovering.
    pub fn new(name: String, config: serde_json::Value) -> Node {
        Node {
            name,
            broker_id: Mutex::new(None),
            started: Instant::now(),
            config,
            phase: Mutex::new(Phase::Recovering),
            #[cfg(feature = "failpoints")]
            failpoints: Mutex::new(None),
        }
    }

    /// Gives the process failpoints.
    #[cfg(feature = "failpoints")]
    pub fn set_failpoints(&self, points: std::sync::Arc<dyn crate::Failpoints>) {
        *self.failpoints.lock().expect("a panic ends the process") = Some(points);
    }

    #[cfg(feature = "failpoints")]
    pub(crate) fn failpoints(&self) -> Option<std::sync::Arc<dyn crate::Failpoints>> {
        self.failpoints.lock().expect("a panic ends the process").clone()
    }

    /// The present phase.
    pub fn phase(&self) -> Phase {
        self.phase.lock().expect("a panic ends the process").clone()
    }

    /// Goes on to `phase`. A failure is final.
    pub fn enter(&self, phase: Phase) {
        let mut now = self.phase.lock().expect("a panic ends the process");
        if !matches!(*now, Phase::Failed(_)) {
            *now = phase;
        }
    }

    /// The id of the data directory, once known.
    pub fn broker_id(&self) -> Option<String> {
        self.broker_id.lock().expect("a panic ends the process").clone()
    }

    /// Tells the id of the data directory.
    pub fn set_broker_id(&self, id: String) {
        *self.broker_id.lock().expect("a panic ends the process") = Some(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_final() {
        let node = Node::new("n".into(), serde_json::Value::Null);
        assert_eq!(node.phase(), Phase::Recovering);
        node.enter(Phase::Failed("flush".into()));
        node.enter(Phase::Ready);
        assert_eq!(node.phase(), Phase::Failed("flush".into()));
    }
}
