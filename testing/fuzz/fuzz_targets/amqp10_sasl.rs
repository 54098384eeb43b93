//! Fuzzes `packhorse_amqp10::fuzz::sasl`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| packhorse_amqp10::fuzz::sasl(data));
