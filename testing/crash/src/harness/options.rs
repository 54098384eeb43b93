//! What a client process is told when it is started.

use std::net::SocketAddr;
use std::path::PathBuf;

/// The command line of a client process.
#[derive(Clone, Debug, clap::Args)]
pub struct ClientOptions {
    /// Its number among the clients; producers and consumers have numbers of their own in the history, made from it.
    #[arg(long)]
    pub number: u32,
    /// The broker.
    #[arg(long)]
    pub to: SocketAddr,
    /// The run, as in bodies and histories.
    #[arg(long)]
    pub run: u64,
    /// What it does is drawn from this.
    #[arg(long)]
    pub seed: u64,
    /// Its history.
    #[arg(long)]
    pub history: PathBuf,
    /// The file of the figures that all clients show.
    #[arg(long)]
    pub flow: PathBuf,
    /// Its queues: a link for each.
    #[arg(long, value_delimiter = ',')]
    pub queue: Vec<String>,
    /// A queue that is used at most once: sent to and received from on pre-settled links.
    #[arg(long)]
    pub once: Option<String>,
}

/// Links that one client process may have in its life.
const LINKS: u32 = 1_000_000;

impl ClientOptions {
    /// The number of its n-th link.
    pub fn link_number(&self, nth: u32) -> u32 {
        assert!(nth < LINKS, "a client that attaches a million times has come apart");
        self.number * LINKS + nth
    }
}
