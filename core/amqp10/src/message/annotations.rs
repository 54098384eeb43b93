//! Writing message-annotations: anew, or those of a message changed by a `modified` outcome.

use alloc::vec::Vec;

use super::Section;
use super::keys::Key;
use crate::codec::{Map, ValueWriter, put_descriptor};

/// Writes a message-annotations section whose keys (symbols) and values `fill` writes by turns.
pub fn write_annotations(out: &mut Vec<u8>, fill: impl FnOnce(&mut ValueWriter<'_>)) {
    put_descriptor(out, u64::from(Section::MessageAnnotations.code()));
    ValueWriter::map(out, fill);
}

/// Writes the message-annotations section of a message that had `current` and gets `changes` merged in: a key that is in
/// both takes the new value at its old place, keys that are new follow in the order of `changes`.
//= amqp10 3.4.5
pub fn merge_annotations(out: &mut Vec<u8>, current: Option<Map<'_>>, changes: &Map<'_>) {
    let current = current.unwrap_or_default();
    // Sorted, since both maps are as large as a peer likes. The flag says that the change has found its place; of a key
    // that `changes` has twice the last one counts.
    let mut sorted: Vec<(Key<'_>, usize, bool)> =
        changes.iter().enumerate().map(|(index, (key, _))| (Key::of(key), index, false)).collect();
    sorted.sort_unstable();
    sorted.dedup_by(|later, earlier| {
        let same = later.0 == earlier.0;
        if same {
            earlier.1 = later.1;
        }
        same
    });
    let values: Vec<_> = changes.iter().map(|(_, value)| value).collect();
    write_annotations(out, |map| {
        for (key, value) in current.iter() {
            let change = sorted.binary_search_by(|probe| probe.0.cmp(&Key::of(key))).ok();
            let change = change.and_then(|at| sorted.get_mut(at));
            let value = match change {
                Some(change) => {
                    change.2 = true;
                    values.get(change.1).copied().unwrap_or(value)
                }
                None => value,
            };
            map.next().extend_from_slice(key.as_bytes());
            map.next().extend_from_slice(value.as_bytes());
        }
        sorted.sort_unstable_by_key(|change| change.1);
        let mut added = sorted.iter().filter(|change| !change.2).map(|change| change.1).peekable();
        for (index, (key, value)) in changes.iter().enumerate() {
            if added.next_if_eq(&index).is_some() {
                map.next().extend_from_slice(key.as_bytes());
                map.next().extend_from_slice(value.as_bytes());
            }
        }
    });
}
