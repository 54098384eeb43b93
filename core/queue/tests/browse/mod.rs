//! What a browser costs: nothing that grows with the queue, in no turn.

use crate::rig::{Q, Rig};
use packhorse_queue::{ConsumerId, Input};

/// Most entries that a browser passes in one dispatch.
const STEPS: u64 = 64;

#[test]
fn a_browser_passes_what_others_hold_in_slices_and_never_again() {
    let mut rig = Rig::new(10);
    for number in 0..100_000 {
        rig.send(Q, number, 4, false);
    }
    rig.flush();
    let consumer = rig.subscribe(Q, 1);
    assert_eq!(rig.receive(Q, consumer, 90_000).len(), 90_000);
    let browser = ConsumerId(2);
    rig.handle(Q, Input::Browse { consumer: browser });
    rig.handle(Q, Input::Credit { consumer: browser, limit: 10 });
    let mut slices = 0;
    while rig.dispatch(Q, 64) {
        slices += 1;
        assert!(slices <= 90_000 / STEPS + 1, "each entry is passed once");
    }
    assert!(slices >= 90_000 / STEPS - 1, "{slices} slices: each is short");
    let seen = |rig: &mut Rig| rig.take(browser).iter().map(|got| got.number()).collect::<Vec<_>>();
    assert_eq!(seen(&mut rig), (90_000..90_010).collect::<Vec<_>>());
    rig.handle(Q, Input::Credit { consumer: browser, limit: 12 });
    assert!(!rig.dispatch(Q, 64), "it goes on where it was");
    assert_eq!(seen(&mut rig), [90_010, 90_011]);
    // Where it stands, all goes away; and the end of a long queue is as near as its front.
    rig.handle(Q, Input::Purge { token: 1 });
    while rig.dispatch(Q, 64) {}
    rig.handle(Q, Input::Credit { consumer: browser, limit: 1_000 });
    while rig.dispatch(Q, 64) {}
    assert_eq!(seen(&mut rig), [0; 0]);
    assert!(rig.queue(Q).quiet_for(browser));
    rig.send(Q, 7, 4, false);
    assert!(!rig.dispatch(Q, 64));
    assert_eq!(rig.take(browser).len(), 1);
    assert_eq!(rig.queue(Q).stats().acquired, 90_000);
}
