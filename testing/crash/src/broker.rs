//! A broker process: started on a directory of its own and free ports, watched, killed when dropped.
//!
//! The binary is `PACKHORSE_BIN`, otherwise the one beside the executable, or the folder of test executables (`cargo build -p packhorse` makes it).

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take that must come at last.
const PATIENCE: Duration = Duration::from_secs(60);

fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("PACKHORSE_BIN") {
        return path.into();
    }
    // target/debug/deps/<test> -> target/debug/packhorse; a program lies beside it.
    let program = std::env::current_exe().expect("a process knows its executable");
    let beside = |up| program.ancestors().nth(up).map(|folder| folder.join("packhorse"));
    let beside = beside(1).filter(|path| path.exists()).or_else(|| beside(2)).expect("it lies in target/…");
    assert!(beside.exists(), "{}: not there; run `cargo build -p packhorse` first", beside.display());
    beside
}

/// `packhorse serve` on `<dir>/data` and free ports, with more flags, and nothing from the environment of whoever runs the
/// tests.
pub fn serve(dir: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(binary());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PACKHORSE_") {
            command.env_remove(name);
        }
    }
    command.env_remove("NOTIFY_SOCKET").stdin(Stdio::null()).arg("serve");
    for (flag, value) in
        [("--listen", "127.0.0.1:0".into()), ("--http", "127.0.0.1:0".into()), ("--data", dir.join("data"))]
    {
        if !flags.contains(&flag) {
            command.arg(flag).arg(value);
        }
    }
    command.args(flags);
    command
}

/// How a broker ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The exit code; none if a signal ended it.
    pub code: Option<i32>,
    /// All that it logged.
    pub log: String,
}

impl Ended {
    /// The last line of the log.
    pub fn last(&self) -> &str {
        self.log.lines().last().unwrap_or("")
    }
}

/// See the module.
pub struct Broker {
    child: Child,
    log: PathBuf,
    facts: Value,
}

impl Broker {
    /// Starts a broker on `<dir>/data`, which must become ready. Its log goes on in `<dir>/broker.log`.
    pub fn start(dir: &Path, flags: &[&str]) -> Broker {
        Broker::from_command(dir, serve(dir, flags))
            .unwrap_or_else(|ended| panic!("the broker did not become ready: exit {:?}\n{}", ended.code, ended.log))
    }

    /// Runs a command that is `serve`, until it is ready or ends.
    pub fn from_command(dir: &Path, mut command: Command) -> Result<Broker, Ended> {
        let ready = dir.join("ready.json");
        let log = dir.join("broker.log");
        let stderr = File::options().create(true).append(true).open(&log).expect("the log can be opened");
        command.arg("--ready-file").arg(&ready).stdout(Stdio::piped()).stderr(stderr);
        let mut child = command.spawn().expect("the broker's binary can be run");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("piped");
        let _ = BufReader::new(stdout).read_line(&mut line);
        let mut broker = Broker { child, log, facts: Value::Null };
        if !line.starts_with("ready ") {
            return Err(broker.end());
        }
        let facts = std::fs::read(&ready).expect("the ready file is there before the ready line");
        broker.facts = serde_json::from_slice(&facts).expect("the ready file is JSON");
        Ok(broker)
    }

    /// Where AMQP is served.
    pub fn amqp(&self) -> SocketAddr {
        self.facts["amqp"][0].as_str().and_then(|a| a.parse().ok()).expect("an address in the ready file")
    }

    /// Where HTTP is served.
    pub fn http(&self) -> SocketAddr {
        self.facts["http"].as_str().and_then(|a| a.parse().ok()).expect("an address in the ready file")
    }

    /// What the ready file says.
    pub fn facts(&self) -> &Value {
        &self.facts
    }

    /// Files of large messages, those in the attic left out.
    pub fn large_files(&self) -> usize {
        let data = self.facts["data"].as_str().expect("a path in the ready file");
        let all = std::fs::read_dir(Path::new(data).join("large")).expect("a folder of every data directory");
        all.filter_map(Result::ok).filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file())).count()
    }

    /// Everything logged so far by all processes on this directory.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits for a line with all these words: a line is written by a thread of its own, a little after what it tells.
    pub fn logged(&self, words: &[&str]) {
        self.until(&format!("a line with {words:?} in the log"), |broker| {
            broker.log().lines().any(|line| words.iter().all(|word| line.contains(word)))
        });
    }

    /// The last lines of the log, for messages.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// Whether it runs. A zombie does not.
    pub fn alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    fn proc_file(&self, name: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{name}", self.child.id())).unwrap_or_default()
    }

    /// Resident memory, KiB.
    pub fn resident_kib(&self) -> u64 {
        let status = self.proc_file("status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        line.split_whitespace().next().and_then(|n| n.parse().ok()).expect("a running process has VmRSS")
    }

    /// Open file descriptors.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).map_or(0, Iterator::count)
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// As `kill -9`.
    pub fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it was killed");
    }

    /// Waits for its end.
    pub fn end(mut self) -> Ended {
        let until = Instant::now() + PATIENCE;
        // A thread could wait without a clock, but not give up.
        while self.alive() {
            assert!(Instant::now() < until, "the broker does not end; its log: {}", self.log_tail());
            pause(Duration::from_millis(5));
        }
        let status = self.child.wait().expect("it has ended");
        Ended { code: status.code(), log: self.log() }
    }

    /// A GET: status and body.
    pub fn get(&self, path: &str) -> (u16, Value) {
        self.request("GET", path, "")
    }

    /// A request with a body: status and body of the answer.
    pub fn request(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(self.http()).expect("HTTP is served");
        stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
        let length = body.len();
        let kind = if body.starts_with('{') { "application/json" } else { "text/plain" };
        let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close");
        write!(stream, "{head}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}").expect("written");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap_or_else(|e| panic!("{method} {path}: {e}\n{}", self.log_tail()));
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
        (status, serde_json::from_str(body).unwrap_or(Value::Null))
    }

    /// The broker's totals and counts.
    pub fn status(&self) -> Value {
        self.get("/api/v1/status").1
    }

    /// A queue's counters; `Null` if there is none.
    pub fn queue(&self, name: &str) -> Value {
        let (status, body) = self.get(&format!("/api/v1/queues/{name}"));
        if status == 200 { body } else { Value::Null }
    }

    /// Waits until `what` holds, asked again and again.
    pub fn until(&self, why: &str, mut what: impl FnMut(&Broker) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !what(self) {
            assert!(Instant::now() < until, "{why}: not after {} s\n{}", PATIENCE.as_secs(), self.log_tail());
            pause(Duration::from_millis(10));
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "another process is asked again and again: nothing of it can be waited for"
)]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}
