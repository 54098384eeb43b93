//! The broker's process over all its lives: always on the same ports and data directory.
//!
//! How it is killed is a [`Death`], so that a power cut can take the place of kill -9.

use super::clock::{now_ns, pause};
use super::http;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a broker may take to end or to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// How the broker's process ends, and what happens to its data directory before the next start.
pub trait Death {
    /// What it is called in histories and reports: `kill`, `power cut`.
    fn word(&self) -> &'static str;

    /// Before a run: `setup.data` may be moved to where this can drop things.
    fn begin_run(&mut self, _setup: &mut Setup) -> Result<(), String> {
        Ok(())
    }

    /// Before a start of the broker, the first one too: what is to be undone, what the command needs.
    fn before_start(&mut self, _command: &mut Command) -> Result<(), String> {
        Ok(())
    }

    /// Ends the process now; when this returns it is gone.
    fn kill(&mut self, broker: &mut Child) -> Result<(), String>;

    /// Whether an error in the broker's log is what this death brings with it.
    fn explains(&self, _line: &str) -> bool {
        false
    }

    /// After a run, before its files may be removed. `clean`: they will not be looked at.
    fn end_run(&mut self, _clean: bool) -> Result<(), String> {
        Ok(())
    }
}

/// `kill -9`: what was written stays, what was in memory is gone.
#[derive(Clone, Copy, Debug, Default)]
pub struct KillNine;

impl Death for KillNine {
    fn word(&self) -> &'static str {
        "kill"
    }

    fn kill(&mut self, broker: &mut Child) -> Result<(), String> {
        broker.kill().and_then(|()| broker.wait()).map(|_| ()).map_err(|e| format!("cannot kill the broker: {e}"))
    }
}

/// How to start it.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The binary.
    pub bin: PathBuf,
    /// The data directory.
    pub data: PathBuf,
    /// A directory for its log and ready file.
    pub dir: PathBuf,
    /// `section.key=value`.
    pub settings: Vec<String>,
    /// Shards of the next start.
    pub shards: u16,
    /// More variables of its environment.
    pub environment: Vec<(String, String)>,
    /// Where it serves AMQP.
    pub amqp: SocketAddr,
    /// Where it serves HTTP.
    pub http: SocketAddr,
}

impl Setup {
    /// Two ports that are free now and stay so: below those that the system gives to connections, for a client that tries to reach
    /// a broker that is not there could be connected to itself.
    pub fn free_ports(seed: u64) -> Result<[SocketAddr; 2], String> {
        const FIRST: u64 = 12_000;
        const MANY: u64 = 18_000;
        let mut found = Vec::new();
        for step in 0..MANY {
            let port = FIRST + (seed.wrapping_mul(7_919) + u64::from(std::process::id()) * 31 + step) % MANY;
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port as u16));
            if TcpListener::bind(address).is_ok() {
                found.push(address);
            }
            if let [amqp, http] = found[..] {
                return Ok([amqp, http]);
            }
        }
        Err("no two free ports between 12000 and 30000".into())
    }

    /// The command line of a start.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.bin);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PACKHORSE_") {
                command.env_remove(name);
            }
        }
        command.env_remove("NOTIFY_SOCKET").envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.arg("serve").arg("--data").arg(&self.data);
        command.args(["--listen", &self.amqp.to_string(), "--http", &self.http.to_string()]);
        command.args(["--shards", &self.shards.to_string()]);
        for setting in &self.settings {
            command.args(["--set", setting]);
        }
        command
    }

    /// Files of large messages, those in the attic left out.
    pub fn large_files(&self) -> u64 {
        let Ok(entries) = std::fs::read_dir(self.data.join("large")) else { return 0 };
        entries.filter_map(Result::ok).filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file())).count() as u64
    }

    /// The figures that clients show.
    pub(super) fn flow(&self) -> PathBuf {
        self.dir.join("flow")
    }

    /// Where all lives write their log.
    pub fn log(&self) -> PathBuf {
        self.dir.join("broker.log")
    }
}

/// A running broker.
#[derive(Debug)]
pub struct Broker {
    child: Child,
    http: SocketAddr,
    /// When it said that it is ready.
    pub ready_ns: u64,
}

impl Broker {
    /// Starts it and waits until it is ready. Err: a sentence; it is gone.
    pub fn start(setup: &Setup, death: &mut dyn Death) -> Result<Broker, String> {
        let mut broker = Broker::begin(setup, death)?;
        let mut line = String::new();
        let stdout = broker.child.stdout.take().ok_or("the broker's output is not piped")?;
        let _ = BufReader::new(stdout).read_line(&mut line);
        if line.starts_with("ready ") {
            broker.ready_ns = now_ns();
            return Ok(broker);
        }
        let ended = broker.end();
        let log = tail(&setup.log());
        Err(format!("the broker did not become ready ({}): {log}", ended.map_or_else(|e| e, |how| how.to_string())))
    }

    /// Starts it and does not wait.
    pub fn begin(setup: &Setup, death: &mut dyn Death) -> Result<Broker, String> {
        let log = File::options().create(true).append(true).open(setup.log());
        let log = log.map_err(|e| format!("cannot write {}: {e}", setup.log().display()))?;
        let mut command = setup.command();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        death.before_start(&mut command)?;
        let child = command.spawn().map_err(|e| format!("cannot run {}: {e}", setup.bin.display()))?;
        Ok(Broker { child, http: setup.http, ready_ns: 0 })
    }

    /// Kills it.
    pub fn kill(mut self, death: &mut dyn Death) -> Result<(), String> {
        death.kill(&mut self.child)
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Asks it to stop in order, and waits for it.
    pub fn stop(mut self) -> Result<ExitStatus, String> {
        self.signal(Signal::TERM);
        self.end()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        // One that has ended is found out by whoever looks.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    fn end(&mut self) -> Result<ExitStatus, String> {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.ended() {
                Some(status) => return Ok(status),
                None if Instant::now() > until => return Err("it does not end".into()),
                None => pause(Duration::from_millis(2)),
            }
        }
    }

    /// A queue as the broker shows it; `None`: there is none of this name.
    pub fn queue(&self, name: &str) -> Result<Option<Value>, String> {
        match http::get(self.http, &format!("/api/v1/queues/{name}"))? {
            (200, queue) => Ok(Some(queue)),
            (404, _) => Ok(None),
            (status, body) => Err(format!("GET queue {name}: {status} {body}")),
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The last lines of a log.
pub(super) fn tail(path: &Path) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_free_and_not_those_of_connections() {
        let [amqp, http] = Setup::free_ports(1).unwrap();
        assert_ne!(amqp, http);
        for address in [amqp, http] {
            assert!((12_000..30_000).contains(&address.port()));
            TcpListener::bind(address).expect("free");
        }
    }
}
