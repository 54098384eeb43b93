//! Load generator and benchmark driver: `packhorse-bench quick` starts a broker, one producer and one consumer, each a
//! process of its own, and prints figures; `produce` and `consume` are those processes.
//!
//! A driver only: it knows the broker as any client does, by AMQP and HTTP.

mod consume;
mod link;
mod message;
mod probe;
mod produce;
mod quick;

use clap::{Args, Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(about = "Load generator for AMQP 1.0 brokers, and a benchmark of Packhorse", version)]
struct Line {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// One producer and one consumer against a fresh broker; figures as text and JSON
    Quick(quick::Options),
    /// Sends numbered messages and waits for their confirms
    Produce(Load),
    /// Receives numbered messages, checks and accepts them
    Consume(Load),
}

/// What one load process does.
#[derive(Args, Clone)]
struct Load {
    /// HOST:PORT of the broker
    #[arg(long, default_value = "127.0.0.1:5672")]
    amqp: String,
    /// The queue
    #[arg(long, default_value = "bench")]
    queue: String,
    /// Messages
    #[arg(long, default_value_t = 500_000)]
    count: u64,
    /// Bytes of a message's body, at least 24
    #[arg(long, default_value_t = 1024)]
    size: usize,
    /// Unconfirmed messages at most; credit of a consumer
    #[arg(long, default_value_t = 1024)]
    window: u32,
    /// Whether messages survive a crash
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    durable: bool,
}

fn main() -> ExitCode {
    let done = match Line::parse().verb {
        Verb::Quick(options) => quick::run(&options),
        Verb::Produce(load) => produce::run(&load),
        Verb::Consume(load) => consume::run(&load),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("packhorse-bench: {why}");
            ExitCode::FAILURE
        }
    }
}
