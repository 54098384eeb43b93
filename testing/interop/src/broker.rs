//! The broker under test: starts the real binary, kills it, reads its counters over HTTP. A broker that already runs
//! (somebody else's too) can stand in for it; then there may be no counters to read.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value as Json;
use tempfile::TempDir;

/// Where the broker comes from.
#[derive(Clone)]
pub(crate) enum Source {
    /// The binary to start.
    Binary(PathBuf),
    /// One that runs: AMQP, perhaps HTTP, perhaps a shell command that kills and restarts it.
    Running { amqp: SocketAddr, http: Option<SocketAddr>, restart: Option<String> },
}

/// A broker that accepts connections.
pub(crate) struct Broker {
    source: Source,
    amqp: SocketAddr,
    http: Option<SocketAddr>,
    process: Option<Child>,
    /// Data directory, log and ready file; removed at the end.
    folder: Option<TempDir>,
}

const START_LIMIT: Duration = Duration::from_secs(60);

impl Broker {
    /// Starts the binary on a fresh data directory, or takes the one that runs.
    pub(crate) fn start(source: &Source) -> Result<Broker, String> {
        match source {
            Source::Running { amqp, http, .. } => {
                Ok(Broker { source: source.clone(), amqp: *amqp, http: *http, process: None, folder: None })
            }
            Source::Binary(_) => {
                let folder = tempfile::Builder::new()
                    .prefix("packhorse-interop-")
                    .tempdir()
                    .map_err(|error| error.to_string())?;
                let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
                let mut broker =
                    Broker { source: source.clone(), amqp: nowhere, http: None, process: None, folder: Some(folder) };
                broker.launch()?;
                Ok(broker)
            }
        }
    }

    fn launch(&mut self) -> Result<(), String> {
        let (Source::Binary(binary), Some(folder)) = (&self.source, &self.folder) else { return Ok(()) };
        let ready = folder.path().join("ready.json");
        let _ = fs::remove_file(&ready); // of the run before
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(folder.path().join("log"))
            .map_err(|error| error.to_string())?;
        let mut process = Command::new(binary)
            .args(["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data"])
            .arg(folder.path().join("data"))
            .arg("--ready-file")
            .arg(&ready)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", binary.display()))?;
        let end = Instant::now() + START_LIMIT;
        let facts = loop {
            if let Some(facts) =
                fs::read_to_string(&ready).ok().and_then(|text| serde_json::from_str::<Json>(&text).ok())
            {
                break facts;
            }
            if let Ok(Some(status)) = process.try_wait() {
                return Err(format!("the broker ended while starting: {status}\n{}", tail(&folder.path().join("log"))));
            }
            if Instant::now() > end {
                let _ = process.kill();
                return Err(format!("the broker was not ready after {} s", START_LIMIT.as_secs()));
            }
            pause(Duration::from_millis(5)); // the ready file has no other sign
        };
        self.process = Some(process);
        self.amqp = endpoint(&facts["amqp"]).ok_or_else(|| format!("no amqp endpoint in {facts}"))?;
        self.http = endpoint(&facts["http"]);
        if self.http.is_none() {
            return Err(format!("no http endpoint in {facts}"));
        }
        Ok(())
    }

    /// One more, where this one came from; an error where this one was running already.
    pub(crate) fn another(&self) -> Result<Broker, String> {
        match &self.source {
            Source::Binary(_) => Broker::start(&self.source),
            Source::Running { .. } => Err("there is one broker only".into()),
        }
    }

    /// What an operator does on the command line.
    pub(crate) fn operate(&self, arguments: &[&str]) -> Result<(), String> {
        let (Source::Binary(binary), Some(http)) = (&self.source, self.http) else {
            return Err("the program of the broker is not known".into());
        };
        let output = Command::new(binary)
            .args(arguments)
            .args(["--url", &format!("http://{http}")])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("{}: {error}", binary.display()))?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("packhorse {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr)))
    }

    /// The same running broker, without the right to stop it.
    pub(crate) fn view(&self) -> Broker {
        Broker { source: self.source.clone(), amqp: self.amqp, http: self.http, process: None, folder: None }
    }

    /// Where clients connect to.
    pub(crate) fn amqp(&self) -> SocketAddr {
        self.amqp
    }

    /// Whether this is our broker: with counters, and held to our own choices beyond the standard.
    pub(crate) fn is_ours(&self) -> bool {
        self.http.is_some()
    }

    /// Whether it can be killed.
    pub(crate) fn can_restart(source: &Source) -> bool {
        matches!(source, Source::Binary(_) | Source::Running { restart: Some(_), .. })
    }

    /// Kills it with SIGKILL and starts it again on the same data.
    pub(crate) fn kill_and_restart(&mut self) -> Result<(), String> {
        self.kill()?;
        self.restart()
    }

    /// SIGKILL, and waits for the end.
    pub(crate) fn kill(&mut self) -> Result<(), String> {
        if let Some(mut process) = self.process.take() {
            process.kill().and_then(|()| process.wait()).map_err(|error| error.to_string())?;
        } else if let Source::Running { restart: Some(command), .. } = &self.source {
            shell(command)?;
        }
        Ok(())
    }

    /// Starts it again after [`Broker::kill`].
    pub(crate) fn restart(&mut self) -> Result<(), String> {
        self.launch()
    }

    /// `GET path`: status and JSON body. `None` where there is no HTTP.
    pub(crate) fn get(&self, path: &str) -> Result<Option<(u16, Json)>, String> {
        let Some(address) = self.http else { return Ok(None) };
        let fetch = || -> std::io::Result<Vec<u8>> {
            let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            // HTTP/1.0, so that the answer ends with the connection and is not chunked.
            write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: application/json\r\n\r\n")?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer)?;
            Ok(answer)
        };
        let answer = fetch().map_err(|error| format!("GET {path}: {error}"))?;
        let text = String::from_utf8_lossy(&answer);
        let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| format!("GET {path}: no HTTP answer"))?;
        let status =
            head.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(|| format!("GET {path}: {head}"))?;
        Ok(Some((status, serde_json::from_str(body).unwrap_or(Json::Null))))
    }

    /// The last lines of the broker's log, for a failure's report.
    pub(crate) fn log_tail(&self) -> String {
        self.folder.as_ref().map_or(String::new(), |folder| tail(&folder.path().join("log")))
    }

    /// Whether the process still runs; always true for one we did not start.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.process.as_mut().is_none_or(|process| matches!(process.try_wait(), Ok(None)))
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Waits where the other process gives no sign that could be waited for.
#[expect(clippy::disallowed_methods, reason = "another process's files and counters can only be looked at again")]
pub(crate) fn pause(time: Duration) {
    thread::sleep(time);
}

fn shell(command: &str) -> Result<(), String> {
    let status =
        Command::new("sh").args(["-c", command]).stdout(Stdio::null()).status().map_err(|error| error.to_string())?;
    if status.success() { Ok(()) } else { Err(format!("`{command}`: {status}")) }
}

/// `"127.0.0.1:5672"`, or the first of a list of such, or of a text with several.
fn endpoint(told: &Json) -> Option<SocketAddr> {
    let text = match told {
        Json::Array(list) => list.first()?.as_str()?,
        other => other.as_str()?,
    };
    let first = text.split([',', ' ']).next()?;
    first.rsplit("//").next()?.to_socket_addrs().ok()?.next()
}

fn tail(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_of_the_ready_file_is_read_from_text_and_list() {
        let wanted: SocketAddr = "127.0.0.1:4321".parse().unwrap();
        for told in [
            "\"127.0.0.1:4321\"",
            "[\"127.0.0.1:4321\",\"[::1]:4321\"]",
            "\"127.0.0.1:4321,[::1]:9\"",
            "\"http://127.0.0.1:4321\"",
        ] {
            assert_eq!(endpoint(&serde_json::from_str(told).unwrap()), Some(wanted), "{told}");
        }
        assert_eq!(endpoint(&Json::Null), None);
    }
}
