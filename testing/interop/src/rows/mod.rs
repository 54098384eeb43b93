//! The rows' functions, by subject. Each says in steps what a client does, and checks what came of it; none knows a
//! client's interface.

pub(crate) mod branches;
pub(crate) mod browse;
pub(crate) mod content;
pub(crate) mod exchange;
pub(crate) mod faults;
pub(crate) mod flow;
pub(crate) mod outcomes;
pub(crate) mod transactions;
