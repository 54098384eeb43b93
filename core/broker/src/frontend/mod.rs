//! Front ends: one folder a protocol. A front end turns a protocol's events into requests to queues, and answers of queues
//! into the protocol's commands. It owns a connection's links; it must not know other connections, shards or the store's rules.

pub(crate) mod amqp10;
