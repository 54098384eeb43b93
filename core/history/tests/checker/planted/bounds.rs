//! I11: no more than settings allow.

use super::*;

fn gauge(value: u64) -> Event<'static> {
    Event::Gauge { kind: "memory", target: "broker", value, most: 1_000 }
}

#[test]
fn more_than_settings_allow() {
    assert_eq!(Story::of(1).at(10, 0, gauge(1_001)).broken(), [("I11", 1)]);
}

#[test]
fn just_what_settings_allow() {
    assert_eq!(Story::of(1).at(10, 0, gauge(0)).at(11, 0, gauge(1_000)).broken(), NOTHING);
}
