//! fe2o3-amqp as a client of the interop matrix.
//!
//! Reads one command a line on standard input, answers one line each on standard output; the commands are described in
//! ../../README.md. It owns nothing but the translation from commands to fe2o3's API: what is right is judged by the driver.

mod messages;
mod transactions;
mod values;

use std::{
    collections::{HashMap, VecDeque},
    io::Write,
    time::Duration,
};

use fe2o3_amqp::{
    connection::{Connection, ConnectionHandle},
    link::{
        Receiver, SendError, Sender,
        delivery::{DeliveryFut, DeliveryInfo},
        receiver::CreditMode,
    },
    sasl_profile::SaslProfile,
    session::{Session, SessionHandle},
    transaction::Controller,
    types::{
        definitions::{self, ErrorCondition, SenderSettleMode},
        messaging::{Body, DistributionMode, Modified, Outcome, Source},
        primitives::{Symbol, Value},
    },
};
use serde_json::{Value as Json, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    time::{sleep, timeout},
};

use crate::transactions::{Named, coordinator, told};

pub(crate) type Trouble = Box<dyn std::error::Error>;

const SHORT: Duration = Duration::from_secs(30);

struct Outbound {
    link: Sender,
    settled: bool,
    /// The name of its connection.
    connection: String,
}

struct Inbound {
    link: Receiver,
    settled: bool,
    held: Vec<DeliveryInfo>,
}

#[derive(Default)]
struct Client {
    senders: HashMap<String, Outbound>,
    receivers: HashMap<String, Inbound>,
    /// With the names of their connections.
    sessions: HashMap<String, (String, SessionHandle<()>)>,
    connections: HashMap<String, ConnectionHandle<()>>,
    /// With the names of their connections.
    coordinators: HashMap<String, (String, &'static Controller)>,
    transactions: HashMap<String, Named>,
}

fn text<'a>(command: &'a Json, key: &str) -> &'a str {
    command[key].as_str().unwrap_or("")
}

fn number(command: &Json, key: &str) -> u64 {
    command[key].as_u64().unwrap_or(0)
}

fn print(answer: &Json) {
    let mut out = std::io::stdout().lock();
    // A driver that went away needs no answer.
    let _ = writeln!(out, "{answer}").and_then(|()| out.flush());
}

fn settle_mode(command: &Json) -> SenderSettleMode {
    match text(command, "settle") {
        "settled" => SenderSettleMode::Settled,
        "unsettled" => SenderSettleMode::Unsettled,
        _ => SenderSettleMode::Mixed,
    }
}

impl Client {
    async fn perform(&mut self, command: &Json) -> Result<Json, Trouble> {
        let link = text(command, "link");
        match text(command, "do") {
            "connect" => {
                let profile = match text(command, "user") {
                    "" => SaslProfile::Anonymous,
                    user => {
                        SaslProfile::Plain { username: user.to_owned(), password: text(command, "password").to_owned() }
                    }
                };
                let url = format!("amqp://{}:{}", text(command, "host"), number(command, "port"));
                let open = Connection::builder().container_id(format!(
                    "interop-fe2o3-{}-{}",
                    std::process::id(),
                    text(command, "connection")
                ));
                let connection = timeout(SHORT, open.sasl_profile(profile).open(url.as_str())).await??;
                self.connections.insert(text(command, "connection").to_owned(), connection);
            }
            "session" => {
                let connection = self.connections.get_mut(text(command, "connection")).ok_or("no such connection")?;
                let session = timeout(SHORT, Session::begin(connection)).await??;
                let name = text(command, "connection").to_owned();
                self.sessions.insert(text(command, "session").to_owned(), (name, session));
            }
            "sender" => {
                let (connection, session) = self.sessions.get_mut(text(command, "session")).ok_or("no such session")?;
                let connection = connection.clone();
                let attach = Sender::builder()
                    .name(link)
                    .target(text(command, "address"))
                    .sender_settle_mode(settle_mode(command))
                    .attach(session);
                let settled = text(command, "settle") == "settled";
                self.senders
                    .insert(link.to_owned(), Outbound { link: timeout(SHORT, attach).await??, settled, connection });
            }
            "receiver" => {
                let (_, session) = self.sessions.get_mut(text(command, "session")).ok_or("no such session")?;
                let credit = match number(command, "prefetch") {
                    0 => CreditMode::Manual,
                    credit => CreditMode::Auto(credit as u32),
                };
                let browses = command["browse"] == true;
                let mut source = Source::builder().address(text(command, "address"));
                if browses {
                    source = source.distribution_mode(DistributionMode::Copy);
                }
                let attach = Receiver::builder()
                    .name(link)
                    .source(source.build())
                    .sender_settle_mode(settle_mode(command))
                    .credit_mode(credit)
                    .attach(session);
                let settled = text(command, "settle") == "settled";
                let receiver = timeout(SHORT, attach).await??;
                // The library has put the broker's answer in the place of what was asked for.
                let mode = receiver.source().as_ref().and_then(|source| source.distribution_mode.as_ref());
                let told = mode.map(|mode| match mode {
                    DistributionMode::Copy => "copy",
                    DistributionMode::Move => "move",
                });
                self.receivers.insert(link.to_owned(), Inbound { link: receiver, settled, held: Vec::new() });
                if browses {
                    return Ok(json!({ "distribution_mode": told }));
                }
            }
            "send" => {
                let sender = self.senders.get_mut(link).ok_or("no such link")?;
                let (from, count, size) =
                    (number(command, "from"), number(command, "count"), number(command, "size") as usize);
                let window = if number(command, "window") == 0 { count } else { number(command, "window") };
                let (durable, ids) = (command["durable"].as_bool(), command["ids"].as_bool() == Some(true));
                let messages = (from..from + count).map(|n| Ok((n, messages::numbered(n, size, durable, ids))));
                let connection = self.connections.get(&sender.connection).ok_or("no such connection")?;
                if let Some(transaction) = self.transactions.get(text(command, "txn")) {
                    let numbered = (from..from + count).map(|n| (n, messages::numbered(n, size, durable, ids)));
                    return transaction.post(&mut sender.link, connection, numbered).await;
                }
                let progress = number(command, "progress") as usize;
                return send_all(sender, connection, messages, window as usize, progress).await;
            }
            "send_specs" => {
                let sender = self.senders.get_mut(link).ok_or("no such link")?;
                let specs = command["messages"].as_array().ok_or("no messages")?;
                let messages = specs.iter().enumerate().map(|(n, spec)| Ok((n as u64, messages::composed(spec)?)));
                let connection = self.connections.get(&sender.connection).ok_or("no such connection")?;
                return send_all(sender, connection, messages, 100, 0).await;
            }
            "credit" => {
                self.receivers
                    .get_mut(link)
                    .ok_or("no such link")?
                    .link
                    .set_credit(number(command, "count") as u32)
                    .await?
            }
            "receive" => {
                let transaction = self.transactions.get(text(command, "txn"));
                return receive(self.receivers.get_mut(link).ok_or("no such link")?, command, transaction).await;
            }
            "settle" => {
                let receiver = self.receivers.get_mut(link).ok_or("no such link")?;
                for delivery in std::mem::take(&mut receiver.held) {
                    match self.transactions.get(text(command, "txn")) {
                        Some(transaction) => {
                            transaction.settle(&mut receiver.link, delivery, text(command, "outcome")).await?
                        }
                        None => settle(&receiver.link, delivery, text(command, "outcome")).await?,
                    }
                }
            }
            "coordinator" => {
                let (connection, session) = self.sessions.get_mut(text(command, "session")).ok_or("no such session")?;
                let controller = timeout(SHORT, coordinator(session, link)).await??;
                self.coordinators.insert(link.to_owned(), (connection.clone(), controller));
            }
            "declare" => {
                let (connection, controller) = self.coordinators.get(link).ok_or("no such coordinator")?;
                let declared = timeout(SHORT, Named::declare(controller, connection.clone())).await??;
                self.transactions.insert(text(command, "txn").to_owned(), declared);
            }
            "forge" => {
                let (connection, _) = self.coordinators.get(link).ok_or("no such coordinator")?;
                self.transactions.insert(text(command, "txn").to_owned(), Named::forged(connection.clone()));
            }
            "discharge" => {
                let transaction = self.transactions.get_mut(text(command, "txn")).ok_or("no such transaction")?;
                let connection = self.connections.get(&transaction.connection).ok_or("no such connection")?;
                transaction.discharge(connection, command["fail"] == true).await?;
            }
            "acquire" => {
                let receiver = self.receivers.remove(link).ok_or("no such link")?.link;
                let transaction = self.transactions.get_mut(text(command, "txn")).ok_or("no such transaction")?;
                let (count, accept) = (number(command, "count") as u32, number(command, "accept") as usize);
                return Ok(json!({ "messages": transaction.acquire(receiver, count, accept).await? }));
            }
            "drain" => self.receivers.get_mut(link).ok_or("no such link")?.link.drain().await?,
            "detach" => {
                if let Some(sender) = self.senders.remove(link) {
                    timeout(SHORT, sender.link.close()).await??;
                }
                if let Some(receiver) = self.receivers.remove(link) {
                    timeout(SHORT, receiver.link.close()).await??;
                }
            }
            "end" => {
                timeout(SHORT, self.sessions.remove(text(command, "session")).ok_or("no such session")?.1.end())
                    .await??
            }
            "close" => {
                timeout(
                    SHORT,
                    self.connections.remove(text(command, "connection")).ok_or("no such connection")?.close(),
                )
                .await??
            }
            "reset" => {
                // In order of ownership; a broken connection cannot be closed in order, and need not be.
                self.senders.clear();
                self.receivers.clear();
                self.transactions.clear();
                self.coordinators.clear();
                self.sessions.clear();
                for (_, mut connection) in self.connections.drain() {
                    if let Ok(Err(late)) = timeout(Duration::from_secs(5), connection.close()).await {
                        eprintln!("{late}");
                    }
                }
            }
            other => return Err(format!("no command {other}").into()),
        }
        Ok(json!({}))
    }
}

type Posted = (u64, DeliveryFut<Result<Outcome, SendError>>);

/// What became of the messages of one `send`.
#[derive(Default)]
struct Tally {
    accepted: usize,
    confirmed: Vec<u64>,
    others: Vec<String>,
    progress: usize,
}

impl Tally {
    fn count(&mut self, number: u64, outcome: Outcome) {
        if matches!(outcome, Outcome::Accepted(_)) {
            self.accepted += 1;
            if self.progress > 0 {
                self.confirmed.push(number);
                if self.accepted % self.progress == 0 {
                    print(&json!({"event": "progress", "confirmed": self.accepted}));
                }
            }
        } else if self.others.len() < 5 {
            self.others.push(format!("{number}: {outcome:?}"));
        }
    }
}

/// Waits for `work` until the connection is gone: fe2o3 leaves sends and outcomes of a lost connection waiting.
async fn answered<F: Future>(connection: &ConnectionHandle<()>, work: F) -> Result<F::Output, Trouble> {
    let gone = async {
        while !connection.is_closed() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        biased;
        output = work => Ok(output),
        () = gone => Err("the connection is lost".into()),
        () = sleep(4 * SHORT) => Err("nothing for 120 s".into()),
    }
}

/// Keeps up to `window` messages unsettled. With `progress` a lost connection ends it and is not an error.
async fn send_all(
    sender: &mut Outbound,
    connection: &ConnectionHandle<()>,
    messages: impl Iterator<Item = Result<(u64, messages::Any), Trouble>>,
    window: usize,
    progress: usize,
) -> Result<Json, Trouble> {
    let mut open: VecDeque<Posted> = VecDeque::new();
    let mut tally = Tally { progress, ..Tally::default() };
    let mut high = 0;
    let sent = async {
        for message in messages {
            let (number, message) = message?;
            while open.len() >= window {
                let (number, outcome) = open.pop_front().ok_or("a window of 0")?;
                tally.count(number, answered(connection, outcome).await??);
            }
            let outcome = answered(connection, sender.link.send_batchable(message)).await??;
            if !sender.settled {
                open.push_back((number, outcome));
                high = high.max(open.len());
            }
        }
        while let Some((number, outcome)) = open.pop_front() {
            tally.count(number, answered(connection, outcome).await??);
        }
        Ok::<(), Trouble>(())
    }
    .await;
    let lost = sent.err().map(|trouble| trouble.to_string());
    if let Some(reason) = &lost {
        if progress == 0 {
            return Err(reason.clone().into());
        }
        for (number, outcome) in open {
            // Those that were confirmed before the connection went.
            if let Ok(Ok(outcome)) = timeout(Duration::ZERO, outcome).await {
                tally.count(number, outcome);
            }
        }
    }
    Ok(
        json!({"accepted": tally.accepted, "confirmed": tally.confirmed, "others": tally.others, "in_flight": high, "lost": lost}),
    )
}

async fn settle(link: &Receiver, delivery: DeliveryInfo, outcome: &str) -> Result<(), Trouble> {
    match outcome {
        "accept" => link.accept(delivery).await?,
        "reject" => {
            let condition = ErrorCondition::Custom(Symbol::from("packhorse:interop"));
            link.reject(delivery, definitions::Error::new(condition, Some("rejected by the test".to_owned()), None))
                .await?;
        }
        "release" => link.release(delivery).await?,
        _ => {
            let modified = Modified {
                delivery_failed: Some(true),
                undeliverable_here: Some(outcome == "undeliverable"),
                message_annotations: None,
            };
            link.modify(delivery, modified).await?;
        }
    }
    Ok(())
}

async fn receive(receiver: &mut Inbound, command: &Json, transaction: Option<&Named>) -> Result<Json, Trouble> {
    let outcome = match text(command, "settle") {
        "" => "accept",
        told => told,
    };
    let wait = Duration::from_millis(number(command, "timeout_ms"));
    let mut messages = Vec::new();
    while (messages.len() as u64) < number(command, "count") {
        let Ok(delivery) = timeout(wait, receiver.link.recv::<Body<Value>>()).await else { break };
        let delivery = delivery.map_err(told)?;
        messages.push(if command["detail"] == true {
            messages::view(delivery.message())
        } else {
            messages::summary(delivery.message())
        });
        if receiver.settled {
            continue;
        }
        let info = DeliveryInfo::from(&delivery);
        if outcome == "hold" {
            receiver.held.push(info);
        } else if let Some(transaction) = transaction {
            transaction.settle(&mut receiver.link, info, outcome).await?;
        } else {
            settle(&receiver.link, info, outcome).await?;
        }
    }
    Ok(json!({ "messages": messages }))
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut client = Client::default();
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let command: Json = match serde_json::from_str(&line) {
            Ok(command) => command,
            Err(error) => json!({"do": error.to_string()}),
        };
        let answer = match client.perform(&command).await {
            Ok(mut answer) => {
                answer["ok"] = json!(true);
                answer
            }
            Err(error) => json!({"error": error.to_string()}),
        };
        print(&answer);
    }
}
