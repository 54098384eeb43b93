//! How the world learns that the broker is ready: a line on standard output, a file, the service manager.

use serde_json::json;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

/// The facts of a start.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    pub(crate) amqp: Vec<SocketAddr>,
    pub(crate) http: SocketAddr,
    pub(crate) data: PathBuf,
    pub(crate) messages: u64,
    pub(crate) recovery_ms: u64,
}

impl fmt::Display for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let amqp = self.amqp.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",");
        let Ready { http, messages, recovery_ms, .. } = self;
        write!(
            f,
            "ready amqp={amqp} http={http} data={} messages={messages} recovery_ms={recovery_ms}",
            self.data.display()
        )
    }
}

impl Ready {
    /// The same facts as JSON.
    pub(crate) fn document(&self) -> serde_json::Value {
        json!({
            "amqp": self.amqp.iter().map(SocketAddr::to_string).collect::<Vec<_>>(),
            "http": self.http.to_string(),
            "data": self.data.display().to_string(),
            "messages": self.messages,
            "recovery_ms": self.recovery_ms,
            "pid": std::process::id(),
            "version": env!("CARGO_PKG_VERSION"),
        })
    }

    /// Writes the document beside `path` and renames it: whoever sees the file sees all of it.
    pub(crate) fn write_file(&self, path: &Path) -> io::Result<()> {
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{}.tmp", std::process::id()));
        let beside = path.with_file_name(name);
        std::fs::write(&beside, format!("{}\n", self.document()))?;
        std::fs::rename(&beside, path).inspect_err(|_| drop(std::fs::remove_file(&beside)))
    }
}

/// Removes a ready file whose broker does not live any more. One that lives keeps it: it may be this start that is a mistake.
pub(crate) fn remove_if_dead(path: &Path) {
    let document = std::fs::read(path).ok().and_then(|bytes| serde_json::from_slice::<serde_json::Value>(&bytes).ok());
    let pid = document.and_then(|document| i32::try_from(document["pid"].as_i64()?).ok());
    let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) else { return };
    if rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH) {
        let _ = std::fs::remove_file(path);
    }
}

/// Tells the service manager, if one asked to be told (`NOTIFY_SOCKET`). It is not needed for anything, so errors are not either.
pub(crate) fn notify(state: &str) {
    if let Some(address) = std::env::var_os("NOTIFY_SOCKET") {
        let _ = notify_at(&address, state);
    }
}

fn notify_at(address: &std::ffi::OsStr, state: &str) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    match address.as_encoded_bytes() {
        #[cfg(target_os = "linux")]
        [b'@', name @ ..] => {
            use std::os::linux::net::SocketAddrExt;
            let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
            socket.send_to_addr(state.as_bytes(), &address)?;
        }
        _ => {
            socket.send_to(state.as_bytes(), address)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready() -> Ready {
        Ready {
            amqp: vec!["127.0.0.1:1234".parse().unwrap(), "[::1]:1235".parse().unwrap()],
            http: "127.0.0.1:8672".parse().unwrap(),
            data: "./packhorse-data".into(),
            messages: 3,
            recovery_ms: 7,
        }
    }

    #[test]
    fn the_line_is_the_one_of_the_specification() {
        let line =
            "ready amqp=127.0.0.1:1234,[::1]:1235 http=127.0.0.1:8672 data=./packhorse-data messages=3 recovery_ms=7";
        assert_eq!(ready().to_string(), line);
    }

    #[test]
    fn the_file_appears_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ready.json");
        ready().write_file(&path).unwrap();
        let document: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(document["amqp"], json!(["127.0.0.1:1234", "[::1]:1235"]));
        assert_eq!(document["pid"], std::process::id());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
        assert!(ready().write_file(&dir.path().join("none/ready.json")).is_err());
    }

    #[test]
    fn a_ready_file_goes_with_its_broker() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ready.json");
        ready().write_file(&path).unwrap();
        remove_if_dead(&path);
        assert!(path.exists(), "this process lives");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        std::fs::write(&path, json!({ "pid": child.id() }).to_string()).unwrap();
        remove_if_dead(&path);
        assert!(!path.exists());
        std::fs::write(&path, "no JSON").unwrap();
        remove_if_dead(&path);
        assert!(path.exists(), "nobody knows whose it is");
    }

    #[test]
    fn the_service_manager_is_told_by_path_and_by_abstract_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        notify_at(path.as_os_str(), "READY=1").unwrap();
        let mut buffer = [0; 32];
        let n = manager.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..n], b"READY=1");
        assert!(notify_at("@packhorse-test-nobody-listens".as_ref(), "READY=1").is_err());
    }
}
