//! Fuzzes `packhorse_amqp10::fuzz::connection`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| packhorse_amqp10::fuzz::connection(data));
