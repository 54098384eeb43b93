//! The messages of the content rows: every section and every type, what of it a client cannot say, and the comparison of
//! what a client sees with what was sent.
//!
//! A typed value is a one-key object: `{"int": "-5"}`; numbers, timestamps (ms) and char (code point) in decimal, float
//! and double as the hex of their bits, decimals and binary in hex; `{"list": [v…]}`, `{"map": [[k, v]…]}`,
//! `{"array": [type, [text…]]}`.

use serde_json::{Map, Value as Json, json};

use crate::table::Kind;

/// One message to send, and what a client must be able to express for it.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) needs: Vec<String>,
    pub(crate) message: Json,
}

/// Samples of each simple type, as text.
const SIMPLE: &[(&str, &[&str])] = &[
    ("boolean", &["true", "false"]),
    ("ubyte", &["0", "255"]),
    ("ushort", &["0", "256", "65535"]),
    ("uint", &["0", "255", "256", "4294967295"]),
    ("ulong", &["0", "255", "256", "18446744073709551615"]),
    ("byte", &["-128", "0", "127"]),
    ("short", &["-32768", "32767"]),
    ("int", &["-2147483648", "-129", "-1", "127", "2147483647"]),
    ("long", &["-9223372036854775808", "-129", "127", "9223372036854775807"]),
    ("float", &["3fc00000", "80000000", "7f7fffff"]),
    ("double", &["400921fb54442d18", "8000000000000000"]),
    ("decimal32", &["2250002a"]),
    ("decimal64", &["223800000000002a"]),
    ("decimal128", &["2208000000000000000000000000002a"]),
    ("char", &["88", "8364"]),
    ("timestamp", &["0", "1700000000123"]),
    ("uuid", &["7a9f3c1e-0b5d-4f6a-8c2e-112233445566"]),
    ("binary", &["", "00ff10", LONG_HEX]),
    ("string", &["", "plain", "größer, 大きい"]),
    ("symbol", &["x", "a.symbol-with:marks"]),
];

/// 260 bytes, past what a one-byte length can say.
const LONG_HEX: &str = concat!(
    "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
    "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
    "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
    "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
    "deadbeef"
);

fn typed(kind: &str, text: &str) -> Json {
    json!({ kind: text })
}

fn text_body() -> Json {
    json!({"value": {"string": "body"}})
}

fn spec(needs: &[&str], message: Json) -> Spec {
    Spec { needs: needs.iter().map(|need| (*need).to_owned()).collect(), message }
}

/// Messages that between them have every section and every field of header and properties.
pub(crate) fn sections() -> Vec<Spec> {
    let mut out = Vec::new();
    for durable in [true, false] {
        out.push(spec(&[], json!({"header": {"durable": durable}, "body": text_body()})));
    }
    for priority in [0, 3, 4, 9] {
        out.push(spec(&[], json!({"header": {"durable": true, "priority": priority}, "body": text_body()})));
    }
    out.push(spec(&[], json!({"header": {"durable": true, "ttl": 3_600_000}, "body": text_body()})));
    let delivery = json!({"x-opt-hop": {"string": "one hop only"}, "x-opt-number": {"ulong": "7"}});
    out.push(spec(&["delivery annotations"], json!({"delivery_annotations": delivery, "body": text_body()})));
    let annotations = json!({"x-opt-a": {"symbol": "kept"}, "x-opt-b": {"list": [{"int": "1"}, {"string": "two"}]}, "x-other": {"boolean": "true"}});
    out.push(spec(&["message annotations"], json!({"message_annotations": annotations, "body": text_body()})));
    for (name, value) in [
        ("message_id", typed("string", "id-1")),
        ("message_id", typed("ulong", "12345678901")),
        ("message_id", typed("uuid", "7a9f3c1e-0b5d-4f6a-8c2e-112233445566")),
        ("message_id", typed("binary", "0102ff")),
        ("user_id", typed("binary", "6775657374")),
        ("to", typed("string", "some/where")),
        ("subject", typed("string", "sübject")),
        ("reply_to", typed("string", "back")),
        ("correlation_id", typed("string", "an answer to")),
        ("correlation_id", typed("ulong", "12345678902")),
        ("correlation_id", typed("uuid", "7a9f3c1e-0b5d-4f6a-8c2e-665544332211")),
        ("correlation_id", typed("binary", "ff0201")),
        ("content_type", typed("symbol", "text/x-test")),
        ("content_encoding", typed("symbol", "gzip")),
        ("absolute_expiry_time", typed("timestamp", "4102444800000")),
        ("creation_time", typed("timestamp", "1700000000123")),
        ("group_id", typed("string", "group")),
        ("reply_to_group_id", typed("string", "reply group")),
    ] {
        let kind = value.as_object().and_then(|object| object.keys().next()).cloned().unwrap_or_default();
        let need = format!("property {name} {kind}");
        out.push(spec(&[&need], json!({"properties": {name: value}, "body": text_body()})));
    }
    let group = json!({"group_id": {"string": "group"}, "group_sequence": {"uint": "7"}});
    out.push(spec(&["property group_id string"], json!({"properties": group, "body": text_body()})));
    let application = json!({"text": {"string": "text"}, "number": {"long": "-5"}, "flag": {"boolean": "true"}});
    out.push(spec(&[], json!({"application_properties": application, "body": text_body()})));
    out.push(spec(&["body data"], json!({"body": {"data": ["00ff10"]}})));
    out.push(spec(&["body data"], json!({"body": {"data": [""]}})));
    out.push(spec(&["several body sections"], json!({"body": {"data": ["00", "0102", "ff"]}})));
    let list = json!([{"string": "s"}, {"int": "-5"}, {"boolean": "true"}, {"double": "3fe0000000000000"}]);
    out.push(spec(&["body sequence"], json!({"body": {"sequence": [list]}})));
    out.push(spec(&["several body sections"], json!({"body": {"sequence": [[{"string": "a"}], [{"string": "b"}]]}})));
    out.push(spec(&["footer"], json!({"body": {"data": ["0011"]}, "footer": {"x-opt-sum": {"binary": "cafe"}}})));
    let all = json!({
        "header": {"durable": true, "priority": 4},
        "delivery_annotations": {"x-opt-hop": {"string": "gone"}},
        "message_annotations": {"x-opt-a": {"string": "kept"}},
        "properties": {"message_id": {"string": "all"}, "subject": {"string": "every section"}},
        "application_properties": {"text": {"string": "text"}},
        "body": {"data": [LONG_HEX]},
        "footer": {"x-opt-sum": {"binary": "cafe"}},
    });
    out.push(spec(&["delivery annotations", "message annotations", "property message_id string", "footer"], all));
    out
}

/// Messages that between them have every type in body, application properties and message annotations.
pub(crate) fn types() -> Vec<Spec> {
    let mut out = vec![spec(&["body null"], json!({"body": {"value": {"null": ""}}}))];
    for (kind, samples) in SIMPLE {
        for sample in *samples {
            out.push(spec(&[&format!("body {kind}")], json!({"body": {"value": typed(kind, sample)}})));
        }
        let keyed = |prefix: &str| -> Map<String, Json> {
            samples.iter().enumerate().map(|(at, sample)| (format!("{prefix}{at}"), typed(kind, sample))).collect()
        };
        let need = format!("application property {kind}");
        out.push(spec(&[&need], json!({"application_properties": keyed("k"), "body": text_body()})));
        let need = format!("annotation {kind}");
        out.push(spec(
            &["message annotations", &need],
            json!({"message_annotations": keyed("x-opt-k"), "body": text_body()}),
        ));
    }
    let nested = json!([{"string": "s"}, {"int": "-5"}, {"boolean": "true"}, {"list": [{"ulong": "7"}]}, {"map": [[{"string": "k"}, {"double": "3fe0000000000000"}]]}]);
    let pairs: Vec<Json> = nested
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
        .map(|(at, value)| json!([{"string": format!("k{at}")}, value]))
        .collect();
    out.push(spec(&["body list"], json!({"body": {"value": {"list": []}}})));
    out.push(spec(&["body list"], json!({"body": {"value": {"list": nested}}})));
    out.push(spec(&["body map"], json!({"body": {"value": {"map": []}}})));
    out.push(spec(&["body map"], json!({"body": {"value": {"map": pairs}}})));
    for (of, items) in [
        ("boolean", ["true", "false"]),
        ("int", ["-1", "2147483647"]),
        ("long", ["-1", "9007199254740991"]),
        ("ulong", ["0", "300"]),
        ("string", ["a", "ü"]),
        ("symbol", ["a", "bc"]),
    ] {
        out.push(spec(&[&format!("body array of {of}")], json!({"body": {"value": {"array": [of, items]}}})));
    }
    out
}

/// What a client's interface cannot say (or its own decoder cannot read back), by the beginning of a need, with the reason.
pub(crate) fn cannot(kind: Kind) -> &'static [(&'static str, &'static str)] {
    match kind {
        Kind::Proton => &[
            ("several body sections", "its Message has one body value"),
            ("footer", "its Message has none"),
            ("property group_id", "its Message sends the group sequence as 0 with it"),
        ],
        Kind::Rhea => {
            &[("footer", "it writes the footer before the body, with strings as keys: no such message exists")]
        }
        Kind::QpidJms => &[
            ("delivery annotations", "not in JMS"),
            ("message annotations", "not in JMS"),
            ("annotation", "not in JMS"),
            ("footer", "not in JMS"),
            ("several body sections", "JMS bodies are one section"),
            ("property message_id", "set by the client itself"),
            ("property user_id", "set by the client itself"),
            ("property to", "set by the client itself"),
            ("property content_", "set by the client itself"),
            ("property absolute_expiry_time", "set by the client itself from the time to live"),
            ("property creation_time", "set by the client itself"),
            ("property correlation_id binary", "a text in JMS"),
            ("property correlation_id ulong", "a text in JMS"),
            ("property correlation_id uuid", "a text in JMS"),
            ("body array", "not a body in JMS, nor are single values but text"),
            ("body ", ""), // those it can say are listed in `can`
            ("application property ", ""),
        ],
        Kind::GoAmqp => &[
            ("body char", "its encoder has no char"),
            ("body decimal", "its encoder has no decimals"),
            ("application property char", "its encoder has no char"),
            ("application property decimal", "its encoder has no decimals"),
            ("annotation char", "its encoder has no char"),
            ("annotation decimal", "its encoder has no decimals"),
        ],
        Kind::Fe2o3 => &[("body array of string", "it cannot read the array of strings it sends")],
    }
}

/// Exceptions to [`cannot`], for the client that cannot say most.
fn can(kind: Kind, need: &str) -> bool {
    let jms_bodies = ["body data", "body sequence", "body string", "body null", "body list", "body map"];
    let jms_properties = ["boolean", "byte", "short", "int", "long", "float", "double", "string"];
    kind == Kind::QpidJms
        && (jms_bodies.contains(&need)
            || need.strip_prefix("application property ").is_some_and(|of| jms_properties.contains(&of)))
}

/// Whether this client can send, and read back, this message.
pub(crate) fn expressible(kind: Kind, spec: &Spec) -> bool {
    let barred = |need: &String| !can(kind, need) && cannot(kind).iter().any(|(start, _)| need.starts_with(start));
    !spec.needs.iter().any(barred)
}

/// Compares what a client saw with what was sent, in all sections the client tells of.
pub(crate) fn same_view(sent: &Json, seen: &Json) -> Result<(), String> {
    let Some(sections) = seen.as_object() else { return Err(format!("not a message: {seen}")) };
    for (section, seen) in sections {
        match section.as_str() {
            "header" => {
                let sent = |field: &str, default: Json| sent["header"].get(field).cloned().unwrap_or(default);
                if let Some(durable) = sent("durable", Json::Null).as_bool()
                    && seen["durable"] != json!(durable)
                {
                    return Err(format!("durable {} came as {}", durable, seen["durable"]));
                }
                if seen["priority"] != sent("priority", json!(4)) {
                    return Err(format!("priority {} came as {}", sent("priority", json!(4)), seen["priority"]));
                }
                if let (Some(sent), Some(seen)) = (sent("ttl", json!(0)).as_u64(), seen["ttl"].as_u64())
                    && (seen > sent || (sent > 0 && seen == 0))
                {
                    return Err(format!("ttl {sent} came as {seen}"));
                }
                if seen["delivery_count"] != json!(0) {
                    return Err(format!("delivery-count is {} at first", seen["delivery_count"]));
                }
            }
            // One hop: whether they are gone is seen in the bytes.
            "delivery_annotations" => {}
            "body" => {
                if !same_body(&sent["body"], seen) {
                    return Err(format!("body {} came as {seen}", sent["body"]));
                }
            }
            _ => {
                let empty = Map::new();
                let sent = sent[section.as_str()].as_object().unwrap_or(&empty);
                let seen = seen.as_object().unwrap_or(&empty);
                let equal = sent.len() == seen.len()
                    && sent.iter().all(|(key, value)| seen.get(key).is_some_and(|other| same_value(value, other)));
                if !equal {
                    return Err(format!("{section} {} came as {}", json!(sent), json!(seen)));
                }
            }
        }
    }
    Ok(())
}

fn same_body(sent: &Json, seen: &Json) -> bool {
    let sequences = |body: &Json| body["sequence"].as_array().cloned();
    match (sequences(sent), sequences(seen)) {
        (Some(sent), Some(seen)) => {
            sent.len() == seen.len()
                && sent.iter().zip(&seen).all(|(sent, seen)| same_value(&json!({"list": sent}), &json!({"list": seen})))
        }
        (None, None) => match (sent.get("value"), seen.get("value")) {
            (Some(sent), Some(seen)) => same_value(sent, seen),
            _ => sent == seen,
        },
        _ => false,
    }
}

/// Equal typed values; `?` on the right is a value whose type the client does not show.
fn same_value(sent: &Json, seen: &Json) -> bool {
    let (Some((kind, sent)), Some((seen_kind, seen))) = (first(sent), first(seen)) else { return false };
    if seen_kind == "?" {
        return seen.as_str().is_some_and(|text| untyped(kind, sent.as_str().unwrap_or(""), text));
    }
    let list = |value: &Json| value.as_array().cloned().unwrap_or_default();
    match (kind, seen_kind) {
        ("list", "list") => {
            let (sent, seen) = (list(sent), list(seen));
            sent.len() == seen.len() && sent.iter().zip(&seen).all(|(sent, seen)| same_value(sent, seen))
        }
        ("map", "map") => {
            let (sent, seen) = (list(sent), list(seen));
            sent.len() == seen.len()
                && sent.iter().all(|pair| {
                    seen.iter().any(|other| same_value(&pair[0], &other[0]) && same_value(&pair[1], &other[1]))
                })
        }
        ("array", "array") if seen[0] == "?" => sent[1] == seen[1],
        ("array", "list") => {
            // rhea shows an array as a list.
            let (of, items, seen) = (sent[0].as_str().unwrap_or("?"), list(&sent[1]), list(seen));
            items.len() == seen.len()
                && items.iter().zip(&seen).all(|(item, seen)| same_value(&json!({ of: item }), seen))
        }
        _ => kind == seen_kind && sent == seen,
    }
}

fn first(typed: &Json) -> Option<(&str, &Json)> {
    typed.as_object()?.iter().next().map(|(kind, value)| (kind.as_str(), value))
}

/// Whether the plain text a client without types shows is that value.
fn untyped(kind: &str, sent: &str, seen: &str) -> bool {
    let bits = |width: usize| u64::from_str_radix(sent, 16).ok().filter(|_| sent.len() == width);
    match kind {
        "float" => bits(8)
            .zip(seen.parse::<f64>().ok())
            .is_some_and(|(bits, value)| f64::from(f32::from_bits(bits as u32)).to_bits() == value.to_bits()),
        "double" => bits(16).zip(seen.parse::<f64>().ok()).is_some_and(|(bits, value)| bits == value.to_bits()),
        "uuid" => seen == sent.replace('-', ""),
        // Past 2^53 the eight bytes are shown.
        "ulong" => seen == sent || sent.parse::<u64>().is_ok_and(|number| seen == format!("{number:016x}")),
        "long" => seen == sent || sent.parse::<i64>().is_ok_and(|number| seen == format!("{number:016x}")),
        "boolean" => seen == sent || seen == if sent == "true" { "1" } else { "0" },
        _ => seen == sent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::CLIENTS;

    #[test]
    fn a_changed_value_type_or_section_is_found() {
        let sent = json!({"properties": {"subject": {"string": "a"}}, "body": {"value": {"list": [{"int": "1"}, {"string": "x"}]}}});
        let seen = |properties: Json, list: Json| json!({"properties": properties, "body": {"value": {"list": list}}});
        let good = json!([{"int": "1"}, {"string": "x"}]);
        assert_eq!(same_view(&sent, &seen(json!({"subject": {"string": "a"}}), good.clone())), Ok(()));
        assert!(same_view(&sent, &seen(json!({}), good.clone())).is_err());
        assert!(same_view(&sent, &seen(json!({"subject": {"symbol": "a"}}), good)).is_err());
        assert!(
            same_view(&sent, &seen(json!({"subject": {"string": "a"}}), json!([{"long": "1"}, {"string": "x"}])))
                .is_err()
        );
        assert!(
            same_view(&sent, &seen(json!({"subject": {"string": "a"}}), json!([{"string": "x"}, {"int": "1"}])))
                .is_err()
        );
    }

    #[test]
    fn a_value_without_its_type_is_compared_by_what_it_says() {
        assert!(untyped("float", "3fc00000", "1.5"));
        assert!(untyped("double", "8000000000000000", "-0"));
        assert!(!untyped("double", "8000000000000000", "0"));
        assert!(untyped("ulong", "18446744073709551615", "ffffffffffffffff"));
        assert!(untyped("long", "-9223372036854775808", "8000000000000000"));
        assert!(!untyped("int", "-1", "1"));
    }

    #[test]
    fn every_client_can_say_a_good_part_and_each_bar_bars_something() {
        for kind in CLIENTS {
            let all: Vec<Spec> = sections().into_iter().chain(types()).collect();
            assert!(all.iter().filter(|spec| expressible(kind, spec)).count() >= 25, "{kind:?}");
            for (start, _) in cannot(kind) {
                assert!(
                    all.iter().any(|spec| spec.needs.iter().any(|need| need.starts_with(start))),
                    "{kind:?} {start}"
                );
            }
        }
    }
}
