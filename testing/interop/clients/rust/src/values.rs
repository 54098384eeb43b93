//! Typed values, one-key objects such as `{"int": "-5"}` (see ../../README.md), to and from fe2o3's [`Value`].

use fe2o3_amqp::types::primitives::{Array, OrderedMap, Symbol, Timestamp, Uuid, Value};
use serde_amqp::primitives::{Dec32, Dec64, Dec128};
use serde_bytes::ByteBuf;
use serde_json::{Value as Json, json};

use crate::Trouble;

pub(crate) fn unhex(text: &str) -> Result<Vec<u8>, Trouble> {
    (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(Trouble::from)).collect()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn exactly<const N: usize>(text: &str) -> Result<[u8; N], Trouble> {
    unhex(text)?.try_into().map_err(|_| format!("{text} is not {N} bytes").into())
}

pub(crate) fn to_native(typed: &Json) -> Result<Value, Trouble> {
    let (kind, raw) = typed.as_object().and_then(|object| object.iter().next()).ok_or("not a typed value")?;
    let items = |raw: &Json| raw.as_array().cloned().ok_or(Trouble::from("not a list"));
    match kind.as_str() {
        "list" => return Ok(Value::List(items(raw)?.iter().map(to_native).collect::<Result<_, _>>()?)),
        "map" => {
            let mut map = OrderedMap::new();
            for pair in items(raw)? {
                map.insert(to_native(&pair[0])?, to_native(&pair[1])?);
            }
            return Ok(Value::Map(map));
        }
        "array" => {
            let of = raw[0].as_str().ok_or("an array names its type")?;
            let values =
                items(&raw[1])?.iter().map(|item| to_native(&json!({ of: item }))).collect::<Result<_, _>>()?;
            return Ok(Value::Array(Array(values)));
        }
        _ => {}
    }
    let text = raw.as_str().ok_or("a typed value holds text")?;
    Ok(match kind.as_str() {
        "null" => Value::Null,
        "boolean" => Value::Bool(text == "true"),
        "ubyte" => Value::Ubyte(text.parse()?),
        "ushort" => Value::Ushort(text.parse()?),
        "uint" => Value::Uint(text.parse()?),
        "ulong" => Value::Ulong(text.parse()?),
        "byte" => Value::Byte(text.parse()?),
        "short" => Value::Short(text.parse()?),
        "int" => Value::Int(text.parse()?),
        "long" => Value::Long(text.parse()?),
        "float" => Value::Float(f32::from_be_bytes(exactly(text)?).into()),
        "double" => Value::Double(f64::from_be_bytes(exactly(text)?).into()),
        "decimal32" => Value::Decimal32(Dec32::from(exactly(text)?)),
        "decimal64" => Value::Decimal64(Dec64::from(exactly(text)?)),
        "decimal128" => Value::Decimal128(Dec128::from(exactly(text)?)),
        "char" => Value::Char(char::from_u32(text.parse()?).ok_or("no such character")?),
        "timestamp" => Value::Timestamp(Timestamp::from(text.parse::<i64>()?)),
        "uuid" => Value::Uuid(Uuid::from(exactly::<16>(&text.replace('-', ""))?)),
        "binary" => Value::Binary(ByteBuf::from(unhex(text)?)),
        "symbol" => Value::Symbol(Symbol::from(text)),
        "string" => Value::String(text.to_owned()),
        other => return Err(format!("fe2o3-amqp has no {other}").into()),
    })
}

pub(crate) fn from_native(value: &Value) -> Json {
    match value {
        Value::Null => json!({"null": ""}),
        Value::Bool(v) => json!({"boolean": v.to_string()}),
        Value::Ubyte(v) => json!({"ubyte": v.to_string()}),
        Value::Ushort(v) => json!({"ushort": v.to_string()}),
        Value::Uint(v) => json!({"uint": v.to_string()}),
        Value::Ulong(v) => json!({"ulong": v.to_string()}),
        Value::Byte(v) => json!({"byte": v.to_string()}),
        Value::Short(v) => json!({"short": v.to_string()}),
        Value::Int(v) => json!({"int": v.to_string()}),
        Value::Long(v) => json!({"long": v.to_string()}),
        Value::Float(v) => json!({"float": hex(&v.into_inner().to_be_bytes())}),
        Value::Double(v) => json!({"double": hex(&v.into_inner().to_be_bytes())}),
        Value::Decimal32(v) => json!({"decimal32": hex(&v.clone().into_inner())}),
        Value::Decimal64(v) => json!({"decimal64": hex(&v.clone().into_inner())}),
        Value::Decimal128(v) => json!({"decimal128": hex(&v.clone().into_inner())}),
        Value::Char(v) => json!({"char": u32::from(*v).to_string()}),
        Value::Timestamp(v) => json!({"timestamp": v.clone().into_inner().to_string()}),
        Value::Uuid(v) => {
            let text = hex(&v.clone().into_inner());
            let dashed = [&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-");
            json!({ "uuid": dashed })
        }
        Value::Binary(v) => json!({"binary": hex(v)}),
        Value::String(v) => json!({"string": v}),
        Value::Symbol(v) => json!({"symbol": v.0}),
        Value::List(v) => json!({"list": v.iter().map(from_native).collect::<Vec<_>>()}),
        Value::Map(v) => {
            json!({"map": v.iter().map(|(key, item)| json!([from_native(key), from_native(item)])).collect::<Vec<_>>()})
        }
        Value::Array(v) => {
            let mut of = "?".to_owned();
            let mut items = Vec::new();
            for item in &v.0 {
                if let Json::Object(object) = from_native(item) {
                    for (kind, text) in object {
                        of = kind;
                        items.push(text);
                    }
                }
            }
            json!({"array": [of, items]})
        }
        Value::Described(_) => json!({"described": ""}),
    }
}
