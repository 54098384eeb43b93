//! Fuzz targets of the codec as plain functions: no input may make one panic. The fuzzer in `testing/fuzz` calls them, the
//! tests replay its corpus and mutate frames with them. They check more than the absence of panics: what was decoded is
//! encoded and decoded again, and a message is the same in whatever pieces it comes.

use alloc::vec::Vec;

pub use crate::engine::fuzz::connection;

use crate::codec::{Data, FrameHeader, FrameKind, Performative, SaslPerformative, Value};
use crate::limits::Limits;
use crate::message::{BodySection, MessageView, merge_annotations};

/// A value of any type: each view of what is inside it.
pub fn value(bytes: &[u8]) {
    let limits = Limits::default();
    if let Ok((value, rest)) = Value::first(bytes, &limits) {
        assert_eq!(value.as_bytes().len() + rest.len(), bytes.len());
        look_into(value.data(), Limits::MAX_DEPTH);
        assert_eq!(Value::from_encoded(value.as_bytes(), &limits), Ok(value));
    }
}

/// Visits all that is nested in `data`; returns how many leaves there are. `levels` more levels can be there at most.
fn look_into(data: Data<'_>, levels: u8) -> u64 {
    let inside = |data| {
        assert!(levels > 0, "deeper than what was validated");
        look_into(data, levels - 1)
    };
    match data {
        Data::List(list) => {
            assert_eq!(list.iter().count(), list.len() as usize);
            list.iter().map(|v| inside(v.data())).sum()
        }
        Data::Map(map) => {
            assert_eq!(map.iter().count(), map.len() as usize);
            map.iter().map(|(k, v)| inside(k.data()) + inside(v.data())).sum()
        }
        Data::Array(array) => {
            assert_eq!(array.iter().count(), array.len() as usize);
            array.iter().map(inside).sum()
        }
        Data::Described(_, value) => inside(value.data()),
        _ => 1,
    }
}

/// A whole AMQP frame, header included.
pub fn frame(bytes: &[u8]) {
    let limits = Limits::default();
    let Ok(Some(header)) = FrameHeader::parse(bytes, limits.frame_bytes, FrameKind::Amqp) else { return };
    let Some(frame) = bytes.get(..header.size as usize) else { return };
    performative(header.body(frame));
}

/// The body of an AMQP frame.
pub fn performative(body: &[u8]) {
    let limits = Limits::default();
    let Ok(Some((performative, payload))) = Performative::decode(body, &limits) else { return };
    let mut again = Vec::new();
    performative.encode(&mut again);
    again.extend_from_slice(payload);
    assert_eq!(Performative::decode(&again, &limits), Ok(Some((performative, payload))));
    if let Performative::Transfer(_) = performative {
        message(payload);
    }
}

/// The body of a SASL frame.
pub fn sasl(body: &[u8]) {
    let limits = Limits::default();
    let Ok(performative) = SaslPerformative::decode(body, &limits) else { return };
    let mut again = Vec::new();
    performative.encode(&mut again);
    assert_eq!(SaslPerformative::decode(&again, &limits), Ok(performative));
}

/// A message: whole, as prefixes, its body in chunks.
pub fn message(bytes: &[u8]) {
    let limits = Limits::default();
    let total = bytes.len() as u64;
    let Ok(view) = MessageView::parse(bytes, &limits) else {
        // A prefix of nonsense may look fine as far as it goes, but nothing more.
        let _ = MessageView::parse_prefix(bytes, None, &limits).map(|view| {
            view.map(|view| view.body_scan(&limits).push(bytes.get(view.layout().body_start()..).unwrap_or_default()))
        });
        return;
    };
    let layout = *view.layout();
    assert_eq!(view.bare_and_footer().len() + layout.bare_start(), bytes.len());
    assert!(view.bare_and_footer().starts_with(view.bare()));
    for body in view.body() {
        match body {
            BodySection::Data(_) => {}
            BodySection::Sequence(list) => {
                look_into(Data::List(list), Limits::MAX_DEPTH);
            }
            BodySection::Value(value) => {
                look_into(value.data(), Limits::MAX_DEPTH);
            }
        }
    }
    for map in [view.delivery_annotations(), view.message_annotations(), view.application_properties(), view.footer()] {
        look_into(map.map_or(Data::Null, Data::Map), Limits::MAX_DEPTH);
    }
    let properties = view.properties();
    assert_eq!(view.properties(), properties);
    if let Some(map) = view.message_annotations() {
        // Merging what is there already changes nothing.
        let mut merged = Vec::new();
        merge_annotations(&mut merged, Some(map), &map);
        let merged = MessageView::parse(&merged, &limits).map(|view| view.message_annotations() == Some(map));
        assert_eq!(merged, Ok(true));
    }
    let body = layout.body_start();
    for cut in [0, 1, body / 2, body.saturating_sub(1), body, body + 1, body + 3, bytes.len().saturating_sub(1)] {
        let Some(prefix) = bytes.get(..cut) else { continue };
        match MessageView::parse_prefix(prefix, Some(total), &limits) {
            Ok(None) => {}
            Ok(Some(part)) => {
                let part = part.layout();
                assert_eq!(
                    (part.header, part.bare_start(), part.body_start(), part.message_annotations()),
                    (layout.header, layout.bare_start(), body, layout.message_annotations())
                );
            }
            Err(error) => panic!("a prefix of a message that is fine: {error}"),
        }
        let mut scan = view.body_scan(&limits);
        let rest = bytes.get(body..).unwrap_or_default();
        let (first, second) = rest.split_at(cut.min(rest.len()));
        let scanned = scan.push(first).and_then(|()| scan.push(second)).and_then(|()| scan.finish());
        assert_eq!(scanned, Ok((layout.bare_start() + view.bare().len()) as u64));
    }
}
