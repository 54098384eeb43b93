//! Fuzzes `packhorse_amqp10::fuzz::message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| packhorse_amqp10::fuzz::message(data));
