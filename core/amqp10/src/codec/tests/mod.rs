//! Tests of the codec, by the standard's sections.

mod hostile;
mod mutation;
mod performatives;
mod roundtrip;
mod types;

use super::*;
use crate::limits::Limits;
use alloc::vec::Vec;

pub(crate) fn limits() -> Limits {
    Limits::default()
}

/// Runs `test` on a stack of 2 MiB: what recurses per nesting level does not survive there.
pub(crate) fn on_small_stack(test: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(2 << 20).spawn(test).expect("a thread").join().expect("no panic");
}

/// The fault of the only value in `bytes`.
pub(crate) fn fault(bytes: &[u8]) -> Fault {
    Value::from_encoded(bytes, &limits()).expect_err("not a valid value")
}

/// Sections of a performative frame by hand: descriptor and list32 with `count` and the bytes of the items.
pub(crate) fn composite(code: u8, count: u32, items: &[u8]) -> Vec<u8> {
    let mut out = alloc::vec![0x00, 0x53, code, 0xd0];
    out.extend_from_slice(&(items.len() as u32 + 4).to_be_bytes());
    out.extend_from_slice(&count.to_be_bytes());
    out.extend_from_slice(items);
    out
}
