//! When a planted fault happens. One test, for the choice is the process's.

use packhorse_model::{Planted, choose_planted, planted};

#[test]
fn a_fault_happens_once_in_so_many_occasions_and_no_other_does() {
    let none = [false; Planted::ALL.len()];
    let all = || Planted::ALL.map(planted);
    assert_eq!(all(), none);
    choose_planted(Some(Planted::SwapMessages), 3);
    let happened: [bool; 7] = std::array::from_fn(|_| planted(Planted::SwapMessages));
    assert_eq!(happened, [false, false, true, false, false, true, false]);
    for fault in Planted::ALL {
        choose_planted(Some(fault), 0);
        assert_eq!(all(), Planted::ALL.map(|other| other == fault), "{}", fault.name());
        assert_eq!(Planted::named(fault.name()), Some(fault));
    }
    choose_planted(None, 1);
    assert_eq!(all(), none);
    assert_eq!(Planted::named("skip"), None);
}
