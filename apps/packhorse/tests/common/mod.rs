//! A real broker process for tests: started with free ports in a directory of its own, killed when dropped.
#![expect(dead_code, reason = "each test file uses its part")]

use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

pub(crate) const BIN: &str = env!("CARGO_BIN_EXE_packhorse");

/// A command of the binary without anything from the environment of whoever runs the tests.
pub(crate) fn packhorse() -> Command {
    let mut command = Command::new(BIN);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PACKHORSE_") {
            command.env_remove(name);
        }
    }
    command.env_remove("NOTIFY_SOCKET").stdin(Stdio::null());
    command
}

pub(crate) struct Broker {
    child: Child,
    /// The ready file's content.
    pub(crate) facts: Value,
    /// The line on standard output.
    pub(crate) line: String,
    pub(crate) ready_file: PathBuf,
}

impl Broker {
    /// Starts on `<dir>/data` with more flags, and waits until it is ready.
    pub(crate) fn start(dir: &Path, flags: &[&str]) -> Broker {
        let ready_file = dir.join("ready.json");
        let mut command = serve(dir, flags);
        command.arg("--ready-file").arg(&ready_file);
        Broker::spawn(&mut command, &ready_file)
    }

    /// Starts a command that becomes a broker with this ready file.
    pub(crate) fn spawn(command: &mut Command, ready_file: &Path) -> Broker {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("ready "), "not ready: {line:?}, {:?}", child.try_wait());
        let facts = serde_json::from_slice(&std::fs::read(ready_file).unwrap()).unwrap();
        Broker { child, facts, line, ready_file: ready_file.into() }
    }

    pub(crate) fn amqp(&self) -> String {
        self.facts["amqp"][0].as_str().unwrap().to_string()
    }

    pub(crate) fn http(&self) -> String {
        self.facts["http"].as_str().unwrap().to_string()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for its end; the exit code, or none if a signal ended it.
    pub(crate) fn wait(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    /// As `kill -9`.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Runs an online verb against this broker.
    pub(crate) fn run(&self, words: &[&str]) -> Output {
        let mut command = packhorse();
        command.args(words).env("PACKHORSE_URL", format!("http://{}", self.http())).env("PACKHORSE_AMQP", self.amqp());
        command.output().unwrap()
    }

    /// Runs a verb that must succeed; its standard output.
    pub(crate) fn done(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Counters of a queue, over HTTP.
    pub(crate) fn queue(&self, name: &str) -> Value {
        let escaped: String = name.bytes().map(|b| format!("%{b:02X}")).collect();
        get(&format!("http://{}", self.http()), &format!("/api/v1/queues/{escaped}"))
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `serve` on `<dir>/data` and free ports.
pub(crate) fn serve(dir: &Path, flags: &[&str]) -> Command {
    let mut command = packhorse();
    command.arg("serve").arg("--data").arg(dir.join("data"));
    if !flags.contains(&"--listen") {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    if !flags.contains(&"--http") {
        command.args(["--http", "127.0.0.1:0"]);
    }
    command.args(flags);
    command
}

/// Runs a command to its end: exit code and standard error.
pub(crate) fn refused(mut command: Command) -> (Option<i32>, String) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (child.wait().unwrap().code(), said)
}

/// A GET by hand: the body as JSON.
pub(crate) fn get(url: &str, path: &str) -> Value {
    use std::io::Write;
    let authority = url.strip_prefix("http://").unwrap();
    let mut stream = std::net::TcpStream::connect(authority).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {authority}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap()
}
