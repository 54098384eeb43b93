//! A process of `packhorse bench`, driven over its standard input and output.

use crate::system::Running;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// See the module. Ends with us: its standard input closes.
pub(crate) struct Load {
    who: &'static str,
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// How a load process ended.
pub(crate) struct Ended {
    /// What it measured.
    pub(crate) figures: Value,
    /// It found something wrong with the messages.
    pub(crate) violated: bool,
}

impl Load {
    /// Starts a side and waits until its links stand. `arguments` go to `packhorse bench`.
    pub(crate) fn start(
        binary: &Path,
        who: &'static str,
        broker: &Running,
        addresses: &[String],
        arguments: &[String],
    ) -> Result<Load, String> {
        let mut command = told(binary, broker, addresses, arguments);
        command.args(["--control", "--role", who]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| format!("{}: {e}", binary.display()))?;
        let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a load process without pipes".into());
        };
        let mut load = Load { who, child, orders, answers: BufReader::new(answers) };
        match load.line()?.as_str() {
            "ready" => Ok(load),
            other => Err(format!("the {who} was to be ready and said `{other}`")),
        }
    }

    /// Starts a load that needs no orders and waits for its end: its figures, and whether it found something wrong.
    pub(crate) fn at_once(
        binary: &Path,
        broker: &Running,
        addresses: &[String],
        arguments: &[String],
    ) -> Result<Ended, String> {
        let mut command = told(binary, broker, addresses, arguments);
        let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().map_err(|e| e.to_string())?;
        let line = String::from_utf8_lossy(&output.stdout);
        let violated = match output.status.code() {
            Some(0) => false,
            Some(1) => true,
            _ => return Err(format!("the load ended with {}", output.status)),
        };
        let figures = serde_json::from_str(line.trim()).map_err(|e| format!("the load said `{line}`: {e}"))?;
        Ok(Ended { figures, violated })
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Begins at a reading of the monotonic clock.
    pub(crate) fn begin(&mut self, at_ns: u64) -> Result<(), String> {
        self.order(&format!("start {at_ns}"))
    }

    /// Tells a consumer how many messages must come in all.
    pub(crate) fn expect(&mut self, count: u64) -> Result<(), String> {
        self.order(&format!("expect {count}"))
    }

    /// Messages confirmed, or received, so far.
    pub(crate) fn count(&mut self) -> Result<u64, String> {
        self.order("count")?;
        let line = self.line()?;
        line.strip_prefix("count ")
            .and_then(|count| count.parse().ok())
            .ok_or_else(|| format!("the {} was to count and said `{line}`", self.who))
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Result<Ended, String> {
        let line = self.line()?;
        let status = self.child.wait().map_err(|e| e.to_string())?;
        let figures = serde_json::from_str(&line).map_err(|e| format!("the {} said `{line}`: {e}", self.who))?;
        match status.code() {
            Some(0) => Ok(Ended { figures, violated: false }),
            Some(1) => Ok(Ended { figures, violated: true }),
            _ => Err(format!("the {} ended with {status}", self.who)),
        }
    }

    fn order(&mut self, order: &str) -> Result<(), String> {
        let who = self.who;
        writeln!(self.orders, "{order}").map_err(|e| format!("the {who} is gone: {e}"))
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line).map_err(|e| e.to_string())?;
        if read == 0 {
            let status = self.child.wait().map_err(|e| e.to_string())?;
            return Err(format!("the {} failed: {status}", self.who));
        }
        Ok(line.trim_end().to_string())
    }
}

/// `packhorse bench` with what every load is told.
fn told(binary: &Path, broker: &Running, addresses: &[String], arguments: &[String]) -> Command {
    let mut command = Command::new(binary);
    command.args(["bench", "--json", "--quiet", "--amqp", &broker.amqp]);
    command.args(addresses.iter().flat_map(|address| ["--queue", address])).args(arguments);
    if let Some((name, password)) = &broker.login {
        command.args(["--user", name, "--password", password]);
    }
    command
}

impl Drop for Load {
    fn drop(&mut self) {
        // Ended already, unless something failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
