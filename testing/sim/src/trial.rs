//! One world from outside: a panic in it is a breach of that seed, not the end of whoever runs it.

use crate::coverage::Coverage;
use crate::fault::Kind;
use crate::plan::Settings;
use crate::verdict::{Breach, Totals, Verdict};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// What the panic of this thread's world said; `None`: no world runs here.
    static SAID: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs the world of these settings; a panic is a breach `panic`. Panics of worlds are not printed from the first call on.
pub fn trial(settings: &Settings) -> Verdict {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |panic| {
            let ours = SAID.with_borrow_mut(|said| match said {
                Some(said) => {
                    *said = panic.to_string();
                    true
                }
                None => false,
            });
            if !ours {
                usual(panic);
            }
        }));
    });
    SAID.set(Some(String::new()));
    // Nothing of the world is left behind a panic.
    let verdict = catch_unwind(AssertUnwindSafe(|| crate::world::run(settings)));
    let said = SAID.take().unwrap_or_default();
    verdict.unwrap_or_else(|_| Verdict {
        digest: 0,
        totals: Totals::default(),
        breaches: vec![Breach::new("panic", said)],
        hits: [0; Kind::COUNT],
        coverage: Coverage::begin(),
        faults: Vec::new(),
        files: Vec::new(),
        notes: Vec::new(),
    })
}
