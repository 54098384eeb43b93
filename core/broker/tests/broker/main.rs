//! The broker as its peers see it: whole shards over a store in memory, clients and raw peers over pipes, virtual time.
//!
//! Every test runs in each of the worlds of `world::each`: one shard and two, mail handed over at once or late, bytes whole or cut
//! anywhere. Tests are named after the rule that they hold the broker to.

mod world;

mod admin;
mod attach;
mod branches;
mod browse;
mod confirms;
mod consume;
mod coordinator;
mod crash;
mod dead_letters;
mod duplicate_ids;
mod ends;
mod hostile;
mod in_doubt;
mod large;
mod limits;
mod login;
mod memory;
mod messages;
mod moves;
mod numbered;
mod numbered_in_doubt;
mod outcomes;
mod poison;
mod purge;
mod random;
mod retired;
mod stealing;
mod stop;
mod transactions;
