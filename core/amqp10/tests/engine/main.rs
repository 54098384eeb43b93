//! The protocol engine from outside: each rule by the name of its section, the twelve sequences, and two engines on a pipe.

mod connection;
mod deliveries;
mod flow;
mod hostile;
mod kit;
mod links;
mod pipe;
mod random;
mod sequences;
mod session;
mod transactions;
mod world;
