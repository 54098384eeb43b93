//! The command that plants faults: what is found, what is not found in time, and what does not exist.

use std::process::Command;

/// Whether it passed, and what it said.
fn planted(arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_packhorse-sim"));
    let output = command.arg("planted").args(arguments).output().expect("the simulator runs");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).expect("it prints text"))
}

#[test]
fn a_fault_is_found_and_the_control_is_clean() {
    let (passed, said) = planted(&["--seeds", "3", "swap-messages", "none"]);
    assert!(passed, "{said}");
    assert!(said.lines().any(|line| line.starts_with("swap-messages") && line.contains("I5 order")), "{said}");
    assert!(said.lines().any(|line| line.starts_with("none") && line.ends_with("0 violations")), "{said}");
    assert!(said.ends_with("2 passed, 0 failed, 0 skipped\n"), "{said}");
}

#[test]
fn a_fault_that_is_not_found_in_time_fails() {
    let (passed, said) = planted(&["--seeds", "0", "swap-messages"]);
    assert!(!passed && said.ends_with("0 passed, 1 failed, 0 skipped\n"), "{said}");
}

#[test]
fn a_fault_that_does_not_exist_fails() {
    let (passed, said) = planted(&["swap-messages", "swap"]);
    assert!(!passed && said.contains("there is no fault swap"), "{said}");
}
