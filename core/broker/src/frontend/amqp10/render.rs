//! Between AMQP's words and ours: termini, outcomes, heads and headers (table "Outcomes" in ARCHITECTURE.md). Pure functions.

use bytes::Bytes;
use packhorse_amqp10::Limits;
use packhorse_amqp10::codec::{
    self, AttachTarget, Data, DeliveryState, Map, Source, Symbols, Target, TerminusDurability, TerminusExpiryPolicy,
    ValueWriter,
};
use packhorse_amqp10::engine::Decision;
use packhorse_amqp10::message::{self, Header, MessageView};
use packhorse_model::{Address, ContentFormat, DuplicateId, Head, HeadFlags, Outcome, Overlay, QueueName};

/// A refusal of an attach or of a message: the standard's condition and a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) condition: &'static str,
    pub(crate) why: String,
}

impl Refused {
    pub(crate) fn new(condition: &'static str, why: impl Into<String>) -> Refused {
        Refused { condition, why: why.into() }
    }

    fn not_there_yet(what: &str) -> Refused {
        Refused::new("amqp:not-implemented", format!("{what} not implemented yet"))
    }
}

/// The part of a terminus that our answer repeats because it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) address: String,
    /// Bits over [`OUTCOMES`]; for sources only.
    outcomes: u8,
    /// Encoded; empty = none. For sources only.
    default_outcome: Vec<u8>,
    /// The capability `queue` was asked for.
    queue: bool,
    /// It browses. For sources only.
    pub(crate) browses: bool,
}

/// The application property with a message's duplicate id, and the most bytes of it.
const DUPLICATE_ID: &str = "_AMQ_DUPL_ID";
const DUPLICATE_ID_BYTES: usize = 255;

/// All outcomes that a consumer may use.
const OUTCOMES: [&str; 4] = ["amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list"];

/// Descriptors of filters that change which messages a link gets. Serving such a link without its filter would be wrong.
const SELECTING: [(&str, u64); 2] = [
    ("apache.org:selector-filter:string", 0x0000_468C_0000_0004),
    ("apache.org:no-local-filter:list", 0x0000_468C_0000_0003),
];

/// The queue that a producer's `attach` names.
pub(crate) fn target(target: Option<&AttachTarget<'_>>) -> Result<(QueueName, Kept), Refused> {
    let target = match target {
        None => {
            return Err(Refused::new("amqp:not-found", "the attach has no target, and no link of this name is held"));
        }
        Some(AttachTarget::Target(target)) => target,
        Some(AttachTarget::Coordinator(_) | AttachTarget::Other(_)) => {
            return Err(Refused::not_there_yet("this kind of target is"));
        }
    };
    if target.dynamic {
        return Err(Refused::not_there_yet("dynamic targets (temporary queues) are"));
    }
    let Some(text) = target.address else {
        return Err(Refused::not_there_yet("the anonymous terminus (a target without an address) is"));
    };
    let name = queue_name(text, &target.capabilities)?;
    let queue = target.capabilities.contains("queue");
    Ok((name, Kept { address: text.into(), queue, ..Kept::default() }))
}

/// The queue that a consumer's `attach` names.
pub(crate) fn source(source: Option<&Source<'_>>) -> Result<(QueueName, Kept), Refused> {
    let Some(source) = source else {
        return Err(Refused::new("amqp:not-found", "the attach has no source, and no link of this name is held"));
    };
    if source.dynamic {
        return Err(Refused::not_there_yet("dynamic sources (temporary queues) are"));
    }
    let Some(text) = source.address else {
        return Err(Refused::new("amqp:invalid-field", "the source has no address: name a queue"));
    };
    // JMS clients send it for durable subscriptions too, which consume.
    let subscribes =
        source.durable == TerminusDurability::UnsettledState && source.expiry_policy == TerminusExpiryPolicy::Never;
    let browses = source.distribution_mode == Some("copy") && !subscribes;
    if let Some(filters) = source.filter {
        for (_, filter) in filters.iter() {
            let Some((descriptor, _)) = filter.as_described() else { continue };
            let known = SELECTING.iter().find(|(symbol, code)| match descriptor {
                codec::Descriptor::Symbol(s) => s == *symbol,
                codec::Descriptor::Code(c) => c == *code,
            });
            if let Some((symbol, _)) = known {
                return Err(Refused::not_there_yet(&format!("the filter {symbol} is")));
            }
        }
    }
    let name = queue_name(text, &source.capabilities)?;
    let mut outcomes = 0;
    for (bit, symbol) in OUTCOMES.iter().enumerate() {
        if source.outcomes.is_empty() || source.outcomes.contains(symbol) {
            outcomes |= 1 << bit;
        }
    }
    let mut default_outcome = Vec::new();
    if let Some(outcome) = &source.default_outcome
        && outcome.symbol().is_some_and(|s| OUTCOMES.contains(&s))
    {
        outcome.encode(&mut default_outcome);
    }
    let queue = source.capabilities.contains("queue");
    Ok((name, Kept { address: text.into(), outcomes, default_outcome, queue, browses }))
}

fn queue_name(text: &str, capabilities: &Symbols<'_>) -> Result<QueueName, Refused> {
    let address = Address::parse(text).map_err(|e| Refused::new("amqp:invalid-field", format!("address: {e}")))?;
    let prefixed = text.starts_with("queue://") || text.starts_with("/queues/");
    let topic = ["topic", "temporary-topic"].iter().any(|c| capabilities.contains(c)) && !prefixed;
    match address {
        Address::Queue(name) if !topic => Ok(name),
        Address::Queue(name) | Address::Topic(name) => {
            Err(Refused::not_there_yet(&format!("topics (asked for: \"{name}\") are")))
        }
    }
}

impl Kept {
    /// The source of our answer. Nothing of the terminus outlives the link.
    pub(crate) fn with_source<R>(&self, limits: &Limits, f: impl FnOnce(Source<'_>) -> R) -> R {
        let mut outcomes = [""; OUTCOMES.len()];
        let mut count = 0;
        for (bit, symbol) in OUTCOMES.iter().enumerate() {
            if self.outcomes & (1 << bit) != 0 {
                outcomes[count] = symbol;
                count += 1;
            }
        }
        let default_outcome = codec::Value::from_encoded(&self.default_outcome, limits)
            .ok()
            .and_then(|value| DeliveryState::from_value(value, limits).ok())
            .and_then(|state| state.outcome());
        f(Source {
            address: Some(&self.address),
            distribution_mode: Some(if self.browses { "copy" } else { "move" }),
            outcomes: Symbols::from_slice(&outcomes[..count]),
            default_outcome,
            capabilities: if self.queue { Symbols::one("queue") } else { Symbols::default() },
            ..Source::default()
        })
    }

    /// What becomes of deliveries that are settled without an outcome.
    pub(crate) fn default_outcome(&self, limits: &Limits) -> Outcome {
        let state = codec::Value::from_encoded(&self.default_outcome, limits)
            .ok()
            .and_then(|value| DeliveryState::from_value(value, limits).ok());
        state.and_then(|state| outcome_of(&state)).unwrap_or(Outcome::ReturnUnseen)
    }

    /// The target of our answer.
    pub(crate) fn target(&self) -> Target<'_> {
        Target {
            address: Some(&self.address),
            capabilities: if self.queue { Symbols::one("queue") } else { Symbols::default() },
            ..Target::default()
        }
    }
}

/// What a consumer's word means to the queue; `None`: it is not the last word.
pub(crate) fn outcome(decision: Decision, state: Option<&DeliveryState<'_>>) -> Option<Outcome> {
    match decision {
        Decision::Accepted => Some(Outcome::Acknowledge),
        Decision::Released => Some(Outcome::ReturnUnseen),
        Decision::Rejected => {
            let error = match state {
                Some(DeliveryState::Rejected(rejected)) => rejected.error,
                _ => None,
            };
            let detail = error.map_or(String::new(), |e| match e.description {
                Some(description) => format!("{}: {description}", e.condition),
                None => e.condition.into(),
            });
            Some(Outcome::Reject { detail: clip(detail) })
        }
        Decision::Modified { delivery_failed, undeliverable_here } => {
            let annotations = match state {
                Some(DeliveryState::Modified(modified)) => modified.message_annotations,
                _ => None,
            };
            let annotations = annotations.filter(|map| !map.is_empty()).map_or(Bytes::new(), |map| {
                let mut out = Vec::new();
                codec::put_map(&mut out, &map);
                Bytes::from(out)
            });
            Some(if delivery_failed {
                Outcome::ReturnSeen { undeliverable_here, annotations }
            } else {
                Outcome::ReturnModified { undeliverable_here, annotations }
            })
        }
        Decision::None | Decision::Received | Decision::Declared | Decision::Transactional | Decision::Other => None,
    }
}

/// The same of an outcome by itself: one within a transaction, or a default.
pub(crate) fn outcome_of(state: &DeliveryState<'_>) -> Option<Outcome> {
    let decision = match state {
        DeliveryState::Accepted => Decision::Accepted,
        DeliveryState::Rejected(_) => Decision::Rejected,
        DeliveryState::Released => Decision::Released,
        DeliveryState::Modified(modified) => Decision::Modified {
            delivery_failed: modified.delivery_failed,
            undeliverable_here: modified.undeliverable_here,
        },
        _ => return None,
    };
    outcome(decision, Some(state))
}

/// A peer's words are kept with the message: at most 1 KiB of them.
fn clip(mut text: String) -> String {
    const MOST: usize = 1024;
    if text.len() > MOST {
        let end = (0..=MOST).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

/// What the broker keeps of a message: its head, and where the content begins that leaves as it came (header and
/// delivery-annotations live one hop).
pub(crate) struct Read {
    pub(crate) head: Head,
    pub(crate) content_start: usize,
}

/// Reads a message with format 0, or the first part of one (`spec/entry.md`, "Persistent and not").
pub(crate) fn read(view: &MessageView<'_>, default_durable: bool, arrived_ms: u64) -> Read {
    let header = view.header();
    // The JMS mapping leaves out a header that says nothing: there absence means not persistent.
    let jms = || view.message_annotation("x-opt-jms-msg-type").is_some();
    let persistent = header.durable.unwrap_or_else(|| default_durable && (view.layout().has_header || !jms()));
    let mut flags = HeadFlags::default();
    if persistent {
        flags = flags.with(HeadFlags::PERSISTENT);
    }
    if header.durable == Some(true) {
        flags = flags.with(HeadFlags::DURABLE_SAID);
    }
    if header.priority.is_some() {
        flags = flags.with(HeadFlags::PRIORITY_SAID);
    }
    let annotations = view.layout().message_annotations();
    let content_start = if annotations.is_empty() { view.layout().bare_start() } else { annotations.start };
    let head = Head {
        arrived_ms,
        ttl_ms: header.ttl.unwrap_or(0),
        message_format: 0,
        priority: header.priority.unwrap_or(4),
        flags,
        format: ContentFormat::Amqp10,
    };
    Read { head, content_start }
}

/// The duplicate id that a message has, as clients of ActiveMQ Artemis give it (`docs/formats/duplicate-ids.md`).
///
/// # Errors
///
/// It is of another type, or too long.
pub(crate) fn duplicate_id(view: &MessageView<'_>) -> Result<Option<DuplicateId>, Refused> {
    let Some(value) = view.application_properties().and_then(|properties| properties.get(DUPLICATE_ID)) else {
        return Ok(None);
    };
    let bytes = match value.data() {
        Data::Null => return Ok(None),
        Data::String(text) | Data::Symbol(text) => text.as_bytes(),
        Data::Binary(bytes) => bytes,
        _ => {
            let why = format!("the application property {DUPLICATE_ID} is a string or a binary");
            return Err(Refused::new("amqp:invalid-field", why));
        }
    };
    if bytes.len() > DUPLICATE_ID_BYTES {
        let length = bytes.len();
        let why =
            format!("the application property {DUPLICATE_ID} has {length} bytes; it has at most {DUPLICATE_ID_BYTES}");
        return Err(Refused::new("amqp:invalid-field", why));
    }
    Ok(Some(DuplicateId::of(bytes)))
}

/// The head of a message whose format is not the standard's: its bytes are opaque.
pub(crate) fn opaque_head(format: u32, default_durable: bool, arrived_ms: u64) -> Head {
    let flags = if default_durable { HeadFlags::PERSISTENT } else { HeadFlags::default() };
    Head { arrived_ms, ttl_ms: 0, message_format: format, priority: 4, flags, format: ContentFormat::Amqp10 }
}

/// What the front of a message is made from, beside its content.
#[derive(Clone, Debug)]
pub(crate) struct Front {
    pub(crate) head: Head,
    pub(crate) deliveries: u32,
    pub(crate) overlay: Option<Box<Overlay>>,
}

/// Appends what goes out in front of a message's content, and tells how much of the content it replaces: a header, and the
/// annotations if an overlay changes them. `content` may be the first part of `whole` bytes. `None`: more of it is needed,
/// which cannot be with [`Limits::message_head_bytes`] of it.
pub(crate) fn put_front(
    out: &mut Vec<u8>,
    Front { head, deliveries, overlay }: &Front,
    content: &[u8],
    whole: u64,
    now_ms: u64,
    limits: &Limits,
) -> Option<usize> {
    let deliveries = *deliveries;
    if head.message_format != 0 {
        return Some(0);
    }
    // A ttl goes out reduced by the time spent here; expiry itself is not there yet, so at least 1 ms is left.
    let ttl = (head.ttl_ms != 0).then(|| {
        let lived = now_ms.saturating_sub(head.arrived_ms);
        u64::from(head.ttl_ms).saturating_sub(lived).max(1) as u32
    });
    let header = Header {
        durable: head.flags.has(HeadFlags::DURABLE_SAID).then_some(true),
        priority: head.flags.has(HeadFlags::PRIORITY_SAID).then_some(head.priority),
        ttl,
        first_acquirer: None,
        delivery_count: (deliveries > 0).then_some(deliveries),
    };
    let added = overlay.as_deref().map(overlay_annotations).filter(|map| !map.is_empty());
    let added = added.as_ref().and_then(|map| Map::from_encoded(map, limits).ok());
    let Some(added) = added else {
        // A message of nothing but a header has no content; its payload must not be empty.
        if whole == 0 || header != Header::default() {
            header.encode(out);
        }
        return Some(0);
    };
    // Content was checked when it came; where there is none, there are no annotations either.
    let current = match whole {
        0 => None,
        _ => Some(MessageView::parse_prefix(content, Some(whole), limits).ok()??),
    };
    if header != Header::default() {
        header.encode(out);
    }
    message::merge_annotations(out, current.and_then(|view| view.message_annotations()), &added);
    Some(current.map_or(0, |view| view.layout().message_annotations().end))
}

/// Annotations added before, with later ones merged over them: both and the answer are encoded maps.
pub(crate) fn merge_annotations(earlier: &[u8], later: &[u8]) -> Bytes {
    let limits = Limits::default();
    let (Ok(old), Ok(new)) = (Map::from_encoded(earlier, &limits), Map::from_encoded(later, &limits)) else {
        return Bytes::copy_from_slice(later);
    };
    let mut section = Vec::new();
    message::merge_annotations(&mut section, Some(old), &new);
    // The section's descriptor is not part of the map.
    let mut descriptor = Vec::new();
    codec::put_descriptor(&mut descriptor, u64::from(message::Section::MessageAnnotations.code()));
    Bytes::from(section).slice(descriptor.len()..)
}

/// The annotations that an overlay adds, as an encoded map; empty = none.
fn overlay_annotations(overlay: &Overlay) -> Bytes {
    let Some(letter) = &overlay.dead_letter else { return overlay.annotations.clone() };
    let mut out = Vec::new();
    ValueWriter::map(&mut out, |map| {
        let mut pair = |key: &str, put: &dyn Fn(&mut Vec<u8>)| {
            codec::put_symbol(map.next(), key);
            put(map.next());
        };
        pair("x-opt-packhorse-reason", &|out| codec::put_string(out, letter.reason.as_str()));
        if !letter.detail.is_empty() {
            pair("x-opt-packhorse-detail", &|out| codec::put_string(out, &letter.detail));
        }
        pair("x-opt-packhorse-original-address", &|out| codec::put_string(out, letter.address.as_str()));
        pair("x-opt-packhorse-original-sequence", &|out| codec::put_ulong(out, letter.sequence));
        pair("x-opt-packhorse-deliveries", &|out| codec::put_uint(out, letter.deliveries));
    });
    if overlay.annotations.is_empty() { Bytes::from(out) } else { merge_annotations(&overlay.annotations, &out) }
}
