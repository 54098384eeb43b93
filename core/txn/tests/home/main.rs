//! A home among simulated queues and a simulated store: scenarios by name, and random histories against a model and the log.

mod model;
mod rig;
mod rules;
mod scenarios;
