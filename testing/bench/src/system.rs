//! A broker under test: ours, or a peer behind its script. Started on a fresh folder, ended with us.
//!
//! Must not do: load or measure it. What a peer needs to be told is in its script (`testing/bench/peers/README.md`).

use crate::pause;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What our broker is called among the others.
pub(crate) const OURS: &str = "packhorse";

/// How long ours may take to be ready on an empty folder.
const READY: Duration = Duration::from_secs(20);

/// What can be started.
#[derive(Clone, Debug)]
pub(crate) enum System {
    /// Packhorse, with further arguments of `serve`.
    Ours {
        /// Its binary.
        binary: PathBuf,
        /// Added to the command line.
        arguments: Vec<String>,
    },
    /// Another broker.
    Peer {
        /// Its script.
        script: PathBuf,
        /// The script's name.
        name: String,
    },
}

/// A broker that runs, and dies with us.
pub(crate) struct Running {
    /// Its first process.
    pub(crate) pid: u32,
    /// HOST:PORT of its AMQP.
    pub(crate) amqp: String,
    /// Name and password, if it wants any.
    pub(crate) login: Option<(String, String)>,
    end: End,
}

enum End {
    Ours { child: Child, http: String },
    Peer { script: PathBuf, data: PathBuf },
}

impl System {
    /// The peer of this name in a folder of scripts.
    pub(crate) fn peer(folder: &Path, name: &str) -> Result<System, String> {
        let script = folder.join(name);
        if !script.is_file() || name.contains(['.', '/']) {
            return Err(format!("{} has no peer `{name}`", folder.display()));
        }
        let script = script.canonicalize().map_err(|e| format!("{}: {e}", script.display()))?;
        Ok(System::Peer { script, name: name.into() })
    }

    /// `packhorse`, or the peer's name.
    pub(crate) fn name(&self) -> &str {
        match self {
            System::Ours { .. } => OURS,
            System::Peer { name, .. } => name,
        }
    }

    /// Seconds of load before it runs as fast as it can: virtual machines compile as they go.
    pub(crate) fn warm_up_seconds(&self) -> f64 {
        match self.name() {
            "artemis" | "classic" | "brokerj" => 20.0,
            "rabbitmq" => 10.0,
            _ => 3.0,
        }
    }

    /// Version, what a confirm means, settings: what the report says of it.
    pub(crate) fn facts(&self) -> Result<Vec<(String, String)>, String> {
        match self {
            System::Ours { binary, arguments } => {
                let version = text(Command::new(binary).arg("version"))?;
                let settings = if arguments.is_empty() { "as they come".into() } else { arguments.join(" ") };
                Ok(vec![
                    ("version".into(), version.trim().into()),
                    ("confirm".into(), "the record is written and an fdatasync that covers it has returned".into()),
                    ("settings".into(), settings),
                ])
            }
            System::Peer { script, .. } => Ok(facts(&text(Command::new(script).arg("info"))?)),
        }
    }

    /// Puts the peer's files in place; minutes, the first time.
    pub(crate) fn install(&self) -> Result<(), String> {
        match self {
            System::Ours { binary, .. } if binary.is_file() => Ok(()),
            System::Ours { binary, .. } => Err(format!("there is no {}", binary.display())),
            System::Peer { script, .. } => text(Command::new(script).arg("install")).map(drop),
        }
    }

    /// Starts it on a folder of its own and makes the queues; answers with their addresses.
    pub(crate) fn start(&self, dir: &Path, queues: &[String]) -> Result<(Running, Vec<String>), String> {
        match self {
            System::Ours { binary, arguments } => Ok((start_ours(binary, arguments, dir)?, queues.to_vec())),
            System::Peer { script, name } => {
                let data = dir.join("data");
                // Free a moment ago; a peer that takes several ports counts up from it.
                let port = free_port()?;
                let data_name = data.to_string_lossy().into_owned();
                let told = text(Command::new(script).args(["start", &data_name, &port.to_string()]))?;
                let pid = told.trim().parse().map_err(|_| format!("{name} start said `{}`, not a pid", told.trim()))?;
                let mut running = Running {
                    pid,
                    amqp: String::new(),
                    login: None,
                    end: End::Peer { script: script.clone(), data: data.clone() },
                };
                let url = text(Command::new(script).args(["url", &port.to_string()]))?;
                (running.amqp, running.login) = url_parts(url.trim())?;
                text(Command::new(script).arg("queue").arg(&data).args(queues))?;
                let addresses = queues
                    .iter()
                    .map(|queue| Ok(text(Command::new(script).args(["address", queue]))?.trim().to_string()))
                    .collect::<Result<_, String>>()?;
                Ok((running, addresses))
            }
        }
    }
}

impl Running {
    /// What our broker says of itself: `/api/v1/status`. `None`: a peer.
    pub(crate) fn status(&self) -> Result<Option<Value>, String> {
        let End::Ours { http, .. } = &self.end else { return Ok(None) };
        let mut socket = TcpStream::connect(http).map_err(|e| format!("{http}: {e}"))?;
        let request = format!("GET /api/v1/status HTTP/1.1\r\nHost: {http}\r\nConnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).map_err(|e| e.to_string())?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).map_err(|e| e.to_string())?;
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        serde_json::from_str(body).map(Some).map_err(|e| format!("status: {e}: {body}"))
    }

    /// Kills it with SIGKILL and waits until it is gone; its folder stays. A peer is killed by its script.
    pub(crate) fn kill(self) {
        // That is how each of them ends.
        drop(self);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already, and its folder goes away with what it kept.
        match &mut self.end {
            End::Ours { child, .. } => {
                let _ = child.kill();
                let _ = child.wait();
            }
            End::Peer { script, data } => {
                let _ = Command::new(script).arg("kill").arg(data).stderr(Stdio::null()).status();
            }
        }
    }
}

fn start_ours(binary: &Path, arguments: &[String], dir: &Path) -> Result<Running, String> {
    let ready = dir.join("ready.json");
    // That of a run before says nothing of this one.
    let _ = std::fs::remove_file(&ready);
    let log = std::fs::File::create(dir.join("log")).map_err(|e| e.to_string())?;
    let mut command = Command::new(binary);
    command.args(["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data"]).arg(dir.join("data"));
    command.arg("--ready-file").arg(&ready).args(arguments).stdout(Stdio::null()).stderr(log);
    let mut child = command.spawn().map_err(|e| format!("{}: {e}", binary.display()))?;
    let deadline = Instant::now() + READY;
    loop {
        if let Ok(text) = std::fs::read_to_string(&ready) {
            let facts: Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
            let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
            let amqp = text(&facts["amqp"][0]);
            let pid = child.id();
            return Ok(Running { pid, amqp, login: None, end: End::Ours { child, http: text(&facts["http"]) } });
        }
        let ended = child.try_wait().map_err(|e| e.to_string())?;
        if ended.is_some() || Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            let log = std::fs::read_to_string(dir.join("log")).unwrap_or_default();
            return Err(format!("the broker was not ready; it said:\n{log}"));
        }
        pause(Duration::from_millis(10));
    }
}

/// Runs a command to its end; what it printed.
pub(crate) fn text(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    let output = command.stderr(Stdio::inherit()).stdin(Stdio::null()).output().map_err(|e| format!("{name}: {e}"))?;
    if !output.status.success() {
        return Err(format!("`{name} {}` ended with {}", words.join(" "), output.status));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("{name} printed no text"))
}

fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
    Ok(listener.local_addr().map_err(|e| e.to_string())?.port())
}

/// `amqp://NAME:PASSWORD@HOST:PORT` in its parts.
fn url_parts(url: &str) -> Result<(String, Option<(String, String)>), String> {
    let wrong = || format!("`{url}` is not amqp://NAME:PASSWORD@HOST:PORT; a peer without AMQP 1.0 cannot be compared");
    let rest = url.strip_prefix("amqp://").ok_or_else(wrong)?;
    match rest.rsplit_once('@') {
        None => Ok((rest.into(), None)),
        Some((login, place)) => {
            let (name, password) = login.split_once(':').ok_or_else(wrong)?;
            Ok((place.into(), Some((name.into(), password.into()))))
        }
    }
}

/// Lines `name   value`, a value going on in lines that begin with a blank.
fn facts(text: &str) -> Vec<(String, String)> {
    let mut facts: Vec<(String, String)> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        match (line.split_once(char::is_whitespace), facts.last_mut()) {
            (Some((name, value)), _) if !name.is_empty() => facts.push((name.into(), value.trim().into())),
            (_, Some((_, value))) => {
                value.push(' ');
                value.push_str(line.trim());
            }
            _ => {}
        }
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        let login = Some(("guest".to_string(), "secret".to_string()));
        assert_eq!(url_parts("amqp://guest:secret@127.0.0.1:5701"), Ok(("127.0.0.1:5701".into(), login)));
        assert_eq!(url_parts("amqp://127.0.0.1:5701"), Ok(("127.0.0.1:5701".into(), None)));
        assert!(url_parts("nats://127.0.0.1:4222").is_err());
    }

    #[test]
    fn facts_may_take_several_lines() {
        let parsed = facts("version    Some 1.2\nconfirm    written\n           and flushed\n");
        let expected = [("version", "Some 1.2"), ("confirm", "written and flushed")];
        assert_eq!(parsed, expected.map(|(name, value)| (name.to_string(), value.to_string())));
    }

    #[test]
    fn every_script_of_ours_says_what_a_confirm_means() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
        for name in ["artemis", "classic", "brokerj", "rabbitmq", "ramqp"] {
            let peer = System::peer(&folder, name).unwrap();
            let facts = peer.facts().unwrap();
            for wanted in ["version", "confirm", "settings"] {
                assert!(facts.iter().any(|(fact, _)| fact == wanted), "{name} has no {wanted}: {facts:?}");
            }
        }
        assert!(System::peer(&folder, "lib.sh").is_err());
    }
}
