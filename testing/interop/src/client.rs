//! A foreign client as a process: one JSON command a line in, one answer a line back, in between events.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value as Json, json};

/// Past this a client counts as hung. It bounds a fault, it measures nothing.
const ANSWER_LIMIT: Duration = Duration::from_secs(180);

/// How to start a client's program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recipe {
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
}

/// A running client program.
pub(crate) struct Client {
    process: Child,
    input: ChildStdin,
    answers: Receiver<String>,
    complaints: Arc<Mutex<VecDeque<String>>>,
}

impl Client {
    /// Starts the program.
    pub(crate) fn start(recipe: &Recipe) -> Result<Client, String> {
        let mut process = Command::new(&recipe.program)
            .args(&recipe.arguments)
            .envs(recipe.environment.iter().cloned())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", recipe.program))?;
        let (Some(input), Some(output), Some(errors)) =
            (process.stdin.take(), process.stdout.take(), process.stderr.take())
        else {
            return Err("no pipes to the client".into());
        };
        let (sender, answers) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let complaints = Arc::new(Mutex::new(VecDeque::new()));
        let kept = Arc::clone(&complaints);
        thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.push_back(line);
                if kept.len() > 6 {
                    kept.pop_front();
                }
            }
        });
        Ok(Client { process, input, answers, complaints })
    }

    /// Runs one command to its answer; an `error` in it is an error here.
    pub(crate) fn call(&mut self, command: &Json) -> Result<Json, String> {
        self.call_with(command, &mut |_| Ok(()))
    }

    /// As [`Client::call`], and hands each event that comes before the answer to `on_event`.
    pub(crate) fn call_with(
        &mut self,
        command: &Json,
        on_event: &mut dyn FnMut(&Json) -> Result<(), String>,
    ) -> Result<Json, String> {
        let verb = command["do"].as_str().unwrap_or("?").to_owned();
        writeln!(self.input, "{command}").and_then(|()| self.input.flush()).map_err(|_| self.ended(&verb))?;
        let end = Instant::now() + ANSWER_LIMIT;
        loop {
            let line = match self.answers.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => return Err(format!("{verb}: the client does not answer")),
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended(&verb)),
            };
            let answer: Json = serde_json::from_str(&line).map_err(|_| format!("{verb}: not an answer: {line}"))?;
            if answer.get("event").is_some() {
                on_event(&answer)?;
            } else if let Some(error) = answer["error"].as_str() {
                return Err(format!("{verb}: {error}"));
            } else {
                return Ok(answer);
            }
        }
    }

    fn ended(&mut self, verb: &str) -> String {
        let _ = self.process.wait();
        let complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        format!("{verb}: the client ended: {}", complaints.iter().cloned().collect::<Vec<_>>().join(" / "))
    }

    /// Closes whatever the last cell left open.
    pub(crate) fn reset(&mut self) -> Result<(), String> {
        self.call(&json!({"do": "reset"})).map(|_| ())
    }

    /// SIGKILL: its sockets are closed by the kernel, nothing is said to the broker.
    pub(crate) fn kill(mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
