//! Crashes the journal at every disk operation of its workloads and prints what was recovered.
fn main() {}
