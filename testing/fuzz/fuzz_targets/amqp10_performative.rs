//! Fuzzes `packhorse_amqp10::fuzz::performative`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| packhorse_amqp10::fuzz::performative(data));
