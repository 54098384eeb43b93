//! Builds the messages the driver asks for and tells what arrived.

use fe2o3_amqp::types::{
    messaging::{
        AmqpSequence, AmqpValue, ApplicationProperties, Batch, Body, Data, DeliveryAnnotations, Footer, Header,
        Message, MessageAnnotations, MessageId, Priority, Properties,
        annotations::{Annotations, OwnedKey},
    },
    primitives::{SimpleValue, Symbol, Timestamp, Value},
};
use serde_bytes::ByteBuf;
use serde_json::{Map, Value as Json, json};
use sha2::{Digest, Sha256};

use crate::{
    Trouble,
    values::{from_native, hex, to_native, unhex},
};

pub(crate) type Any = Message<Body<Value>>;

/// The body of message `number`; the driver knows the same rule.
fn filling(number: u64, size: usize) -> Vec<u8> {
    let block: Vec<u8> = (0..251).map(|k| (((k + 31 * number) * 7 + 13) % 251) as u8).collect();
    let mut out = Vec::with_capacity(size + block.len());
    while out.len() < size {
        out.extend_from_slice(&block);
    }
    out.truncate(size);
    out
}

pub(crate) fn numbered(number: u64, size: usize, durable: Option<bool>, ids: bool) -> Any {
    let id = ids.then(|| ("_AMQ_DUPL_ID".to_owned(), SimpleValue::String(format!("message {number}"))));
    Message {
        header: durable.map(|durable| Header { durable, priority: Priority(4), ..Default::default() }),
        delivery_annotations: None,
        message_annotations: None,
        properties: None,
        application_properties: Some(ApplicationProperties(
            [("n".to_owned(), SimpleValue::Long(number as i64))].into_iter().chain(id).collect(),
        )),
        body: Body::Data(Batch::new(vec![Data::from(filling(number, size))])),
        footer: None,
    }
}

fn id(value: Value) -> Result<MessageId, Trouble> {
    Ok(match value {
        Value::Ulong(v) => MessageId::Ulong(v),
        Value::Uuid(v) => MessageId::Uuid(v),
        Value::Binary(v) => MessageId::Binary(v),
        Value::String(v) => MessageId::String(v),
        other => return Err(format!("{other:?} is no message id").into()),
    })
}

fn told_id(id: &MessageId) -> Json {
    from_native(&match id.clone() {
        MessageId::Ulong(v) => Value::Ulong(v),
        MessageId::Uuid(v) => Value::Uuid(v),
        MessageId::Binary(v) => Value::Binary(v),
        MessageId::String(v) => Value::String(v),
    })
}

fn annotations(section: &Json) -> Result<Option<Annotations>, Trouble> {
    let Some(items) = section.as_object() else { return Ok(None) };
    let mut out = Annotations::new();
    for (key, value) in items {
        out.insert(OwnedKey::Symbol(Symbol::from(key.as_str())), to_native(value)?);
    }
    Ok(Some(out))
}

pub(crate) fn composed(spec: &Json) -> Result<Any, Trouble> {
    let header = spec["header"].as_object().map(|header| Header {
        durable: header.get("durable").and_then(Json::as_bool).unwrap_or(false),
        priority: Priority(header.get("priority").and_then(Json::as_u64).unwrap_or(4) as u8),
        ttl: header.get("ttl").and_then(Json::as_u64).map(|ttl| ttl as u32),
        ..Default::default()
    });
    let properties = match spec["properties"].as_object() {
        None => None,
        Some(items) => {
            let mut properties = Properties::default();
            for (name, value) in items {
                set(&mut properties, name, to_native(value)?)?;
            }
            Some(properties)
        }
    };
    let application_properties = match spec["application_properties"].as_object() {
        None => None,
        Some(items) => {
            let pairs = items.iter().map(|(key, value)| {
                let value = SimpleValue::try_from(to_native(value)?)
                    .map_err(|_| format!("{value} is no application property"))?;
                Ok((key.clone(), value))
            });
            Some(ApplicationProperties(pairs.collect::<Result<_, Trouble>>()?))
        }
    };
    let body = &spec["body"];
    let body = if let Some(data) = body["data"].as_array() {
        let parts = data
            .iter()
            .map(|text| Ok(Data::from(unhex(text.as_str().ok_or("data is hex")?)?)))
            .collect::<Result<Vec<_>, Trouble>>()?;
        Body::Data(Batch::new(parts))
    } else if let Some(lists) = body["sequence"].as_array() {
        let list = |list: &Json| {
            list.as_array()
                .ok_or(Trouble::from("a sequence is a list"))?
                .iter()
                .map(to_native)
                .collect::<Result<Vec<_>, _>>()
        };
        Body::Sequence(Batch::new(
            lists.iter().map(|items| list(items).map(AmqpSequence)).collect::<Result<Vec<_>, _>>()?,
        ))
    } else {
        Body::Value(AmqpValue(to_native(&body["value"])?))
    };
    Ok(Message {
        header,
        delivery_annotations: annotations(&spec["delivery_annotations"])?.map(DeliveryAnnotations),
        message_annotations: annotations(&spec["message_annotations"])?.map(MessageAnnotations),
        properties,
        application_properties,
        body,
        footer: annotations(&spec["footer"])?.map(Footer),
    })
}

fn set(properties: &mut Properties, name: &str, value: Value) -> Result<(), Trouble> {
    match (name, value) {
        ("message_id", value) => properties.message_id = Some(id(value)?),
        ("correlation_id", value) => properties.correlation_id = Some(id(value)?),
        ("user_id", Value::Binary(v)) => properties.user_id = Some(v),
        ("to", Value::String(v)) => properties.to = Some(v),
        ("subject", Value::String(v)) => properties.subject = Some(v),
        ("reply_to", Value::String(v)) => properties.reply_to = Some(v),
        ("content_type", Value::Symbol(v)) => properties.content_type = Some(v),
        ("content_encoding", Value::Symbol(v)) => properties.content_encoding = Some(v),
        ("absolute_expiry_time", Value::Timestamp(v)) => properties.absolute_expiry_time = Some(v),
        ("creation_time", Value::Timestamp(v)) => properties.creation_time = Some(v),
        ("group_id", Value::String(v)) => properties.group_id = Some(v),
        ("group_sequence", Value::Uint(v)) => properties.group_sequence = Some(v),
        ("reply_to_group_id", Value::String(v)) => properties.reply_to_group_id = Some(v),
        (name, value) => return Err(format!("property {name} cannot be {value:?}").into()),
    }
    Ok(())
}

fn told_annotations(annotations: Option<&Annotations>) -> Json {
    let mut out = Map::new();
    for (key, value) in annotations.into_iter().flatten() {
        let key = match key {
            OwnedKey::Symbol(symbol) => symbol.0.clone(),
            OwnedKey::Ulong(number) => number.to_string(),
        };
        out.insert(key, from_native(value));
    }
    Json::Object(out)
}

pub(crate) fn view(message: &Any) -> Json {
    let mut properties = Map::new();
    if let Some(p) = &message.properties {
        let mut put = |name: &str, value: Option<Json>| {
            if let Some(value) = value {
                properties.insert(name.to_owned(), value);
            }
        };
        let text = |value: &Option<String>| value.as_ref().map(|v| json!({"string": v}));
        let symbol = |value: &Option<Symbol>| value.as_ref().map(|v| json!({"symbol": v.0}));
        let moment = |value: &Option<Timestamp>| {
            value.as_ref().map(|v| json!({"timestamp": v.clone().into_inner().to_string()}))
        };
        put("message_id", p.message_id.as_ref().map(told_id));
        put("correlation_id", p.correlation_id.as_ref().map(told_id));
        put("user_id", p.user_id.as_ref().map(|v: &ByteBuf| json!({"binary": hex(v)})));
        put("to", text(&p.to));
        put("subject", text(&p.subject));
        put("reply_to", text(&p.reply_to));
        put("content_type", symbol(&p.content_type));
        put("content_encoding", symbol(&p.content_encoding));
        put("absolute_expiry_time", moment(&p.absolute_expiry_time));
        put("creation_time", moment(&p.creation_time));
        put("group_id", text(&p.group_id));
        put("group_sequence", p.group_sequence.map(|v| json!({"uint": v.to_string()})));
        put("reply_to_group_id", text(&p.reply_to_group_id));
    }
    let application: Map<String, Json> = message
        .application_properties
        .iter()
        .flat_map(|section| section.0.iter())
        .map(|(key, value)| (key.clone(), from_native(&Value::from(value.clone()))))
        .collect();
    let body = match &message.body {
        Body::Data(parts) => json!({"data": parts.iter().map(|part| hex(&part.0)).collect::<Vec<_>>()}),
        Body::Sequence(lists) => {
            json!({"sequence": lists.iter().map(|list| list.0.iter().map(from_native).collect::<Vec<_>>()).collect::<Vec<_>>()})
        }
        Body::Value(AmqpValue(value)) => json!({"value": from_native(value)}),
        Body::Empty => json!({"value": {"null": ""}}), // what this client makes of a null value
    };
    let (durable, priority, ttl, count) = header(message);
    json!({
        "header": {"durable": durable, "priority": priority, "ttl": ttl, "delivery_count": count},
        "delivery_annotations": told_annotations(message.delivery_annotations.as_ref().map(|section| &section.0)),
        "message_annotations": told_annotations(message.message_annotations.as_ref().map(|section| &section.0)),
        "properties": properties, "application_properties": application, "body": body,
        "footer": told_annotations(message.footer.as_ref().map(|section| &section.0)),
    })
}

fn header(message: &Any) -> (bool, u8, u32, u32) {
    message.header.as_ref().map_or((false, 4, 0, 0), |header| {
        (header.durable, header.priority.0, header.ttl.unwrap_or(0), header.delivery_count)
    })
}

pub(crate) fn summary(message: &Any) -> Json {
    let body: &[u8] = match &message.body {
        Body::Data(parts) => parts.iter().next().map_or(&[], |part| &part.0),
        _ => &[],
    };
    let number = match message.application_properties.as_ref().and_then(|section| section.0.get("n")) {
        Some(SimpleValue::Long(number)) => *number,
        _ => -1,
    };
    let (durable, _, _, count) = header(message);
    json!({"n": number, "size": body.len(), "sha": hex(&Sha256::digest(body)), "durable": durable, "count": count})
}
