//! Random values and performatives: what is written is read back as it was.

use super::*;
use alloc::string::String;
use alloc::vec;
use proptest::prelude::*;

/// A value as a tree, to compare with what the views show.
#[derive(Clone, Debug)]
enum Tree {
    Null,
    Boolean(bool),
    Ubyte(u8),
    Ushort(u16),
    Uint(u32),
    Ulong(u64),
    Byte(i8),
    Short(i16),
    Int(i32),
    Long(i64),
    Float(u32),
    Double(u64),
    Decimal32([u8; 4]),
    Decimal64([u8; 8]),
    Decimal128([u8; 16]),
    Char(char),
    Timestamp(i64),
    Uuid([u8; 16]),
    Binary(Vec<u8>),
    String(String),
    Symbol(String),
    List(Vec<Tree>),
    Map(Vec<(Tree, Tree)>),
    Symbols(Vec<String>),
    Described(u64, alloc::boxed::Box<Tree>),
}

fn symbol() -> impl Strategy<Value = String> + Clone {
    "[ -~]{0,20}"
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        Just(Tree::Null),
        any::<bool>().prop_map(Tree::Boolean),
        any::<u8>().prop_map(Tree::Ubyte),
        any::<u16>().prop_map(Tree::Ushort),
        any::<u32>().prop_map(Tree::Uint),
        (0u32..300).prop_map(Tree::Uint),
        any::<u64>().prop_map(Tree::Ulong),
        (0u64..300).prop_map(Tree::Ulong),
        any::<i8>().prop_map(Tree::Byte),
        any::<i16>().prop_map(Tree::Short),
        any::<i32>().prop_map(Tree::Int),
        (-200i32..200).prop_map(Tree::Int),
        any::<i64>().prop_map(Tree::Long),
        (-200i64..200).prop_map(Tree::Long),
        any::<u32>().prop_map(Tree::Float),
        any::<u64>().prop_map(Tree::Double),
        any::<[u8; 4]>().prop_map(Tree::Decimal32),
        any::<[u8; 8]>().prop_map(Tree::Decimal64),
        any::<[u8; 16]>().prop_map(Tree::Decimal128),
        any::<char>().prop_map(Tree::Char),
        any::<i64>().prop_map(Tree::Timestamp),
        any::<[u8; 16]>().prop_map(Tree::Uuid),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(Tree::Binary),
        ".{0,100}".prop_map(Tree::String),
        symbol().prop_map(Tree::Symbol),
        prop::collection::vec(symbol(), 0..5).prop_map(Tree::Symbols),
    ];
    leaf.prop_recursive(6, 60, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Tree::List),
            prop::collection::vec((inner.clone(), inner.clone()), 0..6).prop_map(Tree::Map),
            (any::<u64>(), inner).prop_map(|(code, tree)| Tree::Described(code, tree.into())),
        ]
    })
}

fn put(out: &mut Vec<u8>, tree: &Tree) {
    match tree {
        Tree::Null => put_null(out),
        Tree::Boolean(v) => put_boolean(out, *v),
        Tree::Ubyte(v) => put_ubyte(out, *v),
        Tree::Ushort(v) => put_ushort(out, *v),
        Tree::Uint(v) => put_uint(out, *v),
        Tree::Ulong(v) => put_ulong(out, *v),
        Tree::Byte(v) => put_byte(out, *v),
        Tree::Short(v) => put_short(out, *v),
        Tree::Int(v) => put_int(out, *v),
        Tree::Long(v) => put_long(out, *v),
        Tree::Float(v) => put_float(out, f32::from_bits(*v)),
        Tree::Double(v) => put_double(out, f64::from_bits(*v)),
        Tree::Decimal32(v) => put_decimal32(out, *v),
        Tree::Decimal64(v) => put_decimal64(out, *v),
        Tree::Decimal128(v) => put_decimal128(out, *v),
        Tree::Char(v) => put_char(out, *v),
        Tree::Timestamp(v) => put_timestamp(out, *v),
        Tree::Uuid(v) => put_uuid(out, *v),
        Tree::Binary(v) => put_binary(out, v),
        Tree::String(v) => put_string(out, v),
        Tree::Symbol(v) => put_symbol(out, v),
        Tree::List(v) => ValueWriter::list(out, |list| v.iter().for_each(|tree| put(list.next(), tree))),
        Tree::Map(v) => ValueWriter::map(out, |map| {
            for (key, value) in v {
                put(map.next(), key);
                put(map.next(), value);
            }
        }),
        Tree::Symbols(v) => {
            let symbols: Vec<&str> = v.iter().map(String::as_str).collect();
            put_symbols(out, &Symbols::from_slice(&symbols));
        }
        Tree::Described(code, tree) => {
            put_descriptor(out, *code);
            put(out, tree);
        }
    }
}

fn same(data: Data<'_>, tree: &Tree) -> bool {
    match (data, tree) {
        (Data::Null, Tree::Null) => true,
        (Data::Boolean(a), Tree::Boolean(b)) => a == *b,
        (Data::Ubyte(a), Tree::Ubyte(b)) => a == *b,
        (Data::Ushort(a), Tree::Ushort(b)) => a == *b,
        (Data::Uint(a), Tree::Uint(b)) => a == *b,
        (Data::Ulong(a), Tree::Ulong(b)) => a == *b,
        (Data::Byte(a), Tree::Byte(b)) => a == *b,
        (Data::Short(a), Tree::Short(b)) => a == *b,
        (Data::Int(a), Tree::Int(b)) => a == *b,
        (Data::Long(a), Tree::Long(b)) | (Data::Timestamp(a), Tree::Timestamp(b)) => a == *b,
        (Data::Float(a), Tree::Float(b)) => a.to_bits() == *b,
        (Data::Double(a), Tree::Double(b)) => a.to_bits() == *b,
        (Data::Decimal32(a), Tree::Decimal32(b)) => a == *b,
        (Data::Decimal64(a), Tree::Decimal64(b)) => a == *b,
        (Data::Decimal128(a), Tree::Decimal128(b)) | (Data::Uuid(a), Tree::Uuid(b)) => a == *b,
        (Data::Char(a), Tree::Char(b)) => a == *b,
        (Data::Binary(a), Tree::Binary(b)) => a == *b,
        (Data::String(a), Tree::String(b)) | (Data::Symbol(a), Tree::Symbol(b)) => a == *b,
        (Data::List(a), Tree::List(b)) => {
            a.len() as usize == b.len() && a.iter().zip(b).all(|(a, b)| same(a.data(), b))
        }
        (Data::Map(a), Tree::Map(b)) => {
            a.len() as usize == b.len()
                && a.iter().zip(b).all(|((ak, av), (bk, bv))| same(ak.data(), bk) && same(av.data(), bv))
        }
        (Data::Array(a), Tree::Symbols(b)) => {
            a.len() as usize == b.len() && a.iter().zip(b).all(|(a, b)| a == Data::Symbol(b))
        }
        (Data::Described(Descriptor::Code(a), value), Tree::Described(b, tree)) => a == *b && same(value.data(), tree),
        _ => false,
    }
}

/// What performatives are made of: pools that fields are drawn from.
#[derive(Debug)]
struct Pool {
    texts: Vec<String>,
    symbols: Vec<String>,
    binaries: Vec<Vec<u8>>,
    maps: Vec<Vec<u8>>,
    values: Vec<Vec<u8>>,
    draws: Vec<u32>,
}

fn pool() -> impl Strategy<Value = Pool> {
    let map = prop::collection::vec((symbol(), tree()), 0..4).prop_map(|pairs| {
        let mut out = Vec::new();
        put(&mut out, &Tree::Map(pairs.into_iter().map(|(k, v)| (Tree::Symbol(k), v)).collect()));
        out
    });
    let value = tree().prop_filter_map("null is no field", |tree| {
        let mut out = Vec::new();
        put(&mut out, &tree);
        (!matches!(tree, Tree::Null)).then_some(out)
    });
    (
        prop::collection::vec(".{0,300}", 1..4),
        prop::collection::vec(symbol(), 1..4),
        prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..4),
        prop::collection::vec(map, 1..3),
        prop::collection::vec(value, 1..3),
        prop::collection::vec(any::<u32>(), 60..120),
    )
        .prop_map(|(texts, symbols, binaries, maps, values, draws)| Pool {
            texts,
            symbols,
            binaries,
            maps,
            values,
            draws,
        })
}

/// Draws fields from a pool.
struct Draw<'p> {
    pool: &'p Pool,
    symbols: &'p [&'p str],
    next: usize,
}

impl<'p> Draw<'p> {
    fn number(&mut self) -> u32 {
        self.next += 1;
        let number = self.pool.draws[self.next % self.pool.draws.len()];
        // Small numbers have forms of their own.
        if self.next.is_multiple_of(3) { number % 300 } else { number }
    }

    fn coin(&mut self) -> bool {
        self.number() & 0x10 != 0
    }

    fn maybe<T>(&mut self, draw: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.coin() { Some(draw(self)) } else { None }
    }

    fn one<T>(&mut self, items: &'p [T]) -> &'p T {
        &items[self.number() as usize % items.len()]
    }

    fn text(&mut self) -> &'p str {
        self.one(&self.pool.texts).as_str()
    }

    fn symbol(&mut self) -> &'p str {
        self.one(&self.pool.symbols).as_str()
    }

    fn symbols(&mut self) -> Symbols<'p> {
        Symbols::from_slice(&self.symbols[..self.number() as usize % (self.symbols.len() + 1)])
    }

    fn binary(&mut self) -> &'p [u8] {
        self.one(&self.pool.binaries).as_slice()
    }

    fn map(&mut self) -> Map<'p> {
        Map::from_encoded(self.one(&self.pool.maps).as_slice(), &limits()).expect("a map")
    }

    fn value(&mut self) -> Value<'p> {
        Value::from_encoded(self.one(&self.pool.values).as_slice(), &limits()).expect("a value")
    }

    fn role(&mut self) -> Role {
        if self.coin() { Role::Sender } else { Role::Receiver }
    }

    fn error(&mut self) -> Error<'p> {
        Error { condition: self.symbol(), description: self.maybe(Self::text), info: self.maybe(Self::map) }
    }

    fn message_id(&mut self) -> MessageId<'p> {
        match self.number() % 4 {
            0 => MessageId::Ulong(self.number().into()),
            1 => MessageId::Uuid([self.number() as u8; 16]),
            2 => MessageId::Binary(self.binary()),
            _ => MessageId::String(self.text()),
        }
    }

    fn outcome(&mut self) -> Outcome<'p> {
        match self.number() % 5 {
            0 => Outcome::Accepted,
            1 => Outcome::Rejected(Rejected { error: self.maybe(Self::error) }),
            2 => Outcome::Released,
            3 => Outcome::Modified(Modified {
                delivery_failed: self.coin(),
                undeliverable_here: self.coin(),
                message_annotations: self.maybe(Self::map),
            }),
            _ => Outcome::Declared(Declared { txn_id: self.binary() }),
        }
    }

    fn state(&mut self) -> DeliveryState<'p> {
        match self.number() % 3 {
            0 => DeliveryState::Received(Received {
                section_number: self.number(),
                section_offset: u64::from(self.number()) << 8,
            }),
            1 => DeliveryState::Transactional(TransactionalState {
                txn_id: self.binary(),
                outcome: self.maybe(Self::outcome),
            }),
            _ => self.outcome().into(),
        }
    }

    fn durability(&mut self) -> TerminusDurability {
        [TerminusDurability::None, TerminusDurability::Configuration, TerminusDurability::UnsettledState]
            [self.number() as usize % 3]
    }

    fn expiry(&mut self) -> TerminusExpiryPolicy {
        [
            TerminusExpiryPolicy::LinkDetach,
            TerminusExpiryPolicy::SessionEnd,
            TerminusExpiryPolicy::ConnectionClose,
            TerminusExpiryPolicy::Never,
        ][self.number() as usize % 4]
    }

    fn source(&mut self) -> Source<'p> {
        Source {
            address: self.maybe(Self::text),
            durable: self.durability(),
            expiry_policy: self.expiry(),
            timeout: self.number(),
            dynamic: self.coin(),
            dynamic_node_properties: self.maybe(Self::map),
            distribution_mode: self.maybe(Self::symbol),
            filter: self.maybe(Self::map),
            default_outcome: self.maybe(Self::outcome),
            outcomes: self.symbols(),
            capabilities: self.symbols(),
        }
    }

    fn target(&mut self) -> AttachTarget<'p> {
        if self.coin() {
            return Coordinator { capabilities: self.symbols() }.into();
        }
        Target {
            address: self.maybe(Self::text),
            durable: self.durability(),
            expiry_policy: self.expiry(),
            timeout: self.number(),
            dynamic: self.coin(),
            dynamic_node_properties: self.maybe(Self::map),
            capabilities: self.symbols(),
        }
        .into()
    }

    /// One of each performative of an AMQP frame.
    fn performatives(&mut self) -> [Performative<'p>; 9] {
        [
            Open {
                container_id: self.text(),
                hostname: self.maybe(Self::text),
                max_frame_size: self.number(),
                channel_max: self.number() as u16,
                idle_time_out: self.maybe(Self::number),
                outgoing_locales: self.symbols(),
                incoming_locales: self.symbols(),
                offered_capabilities: self.symbols(),
                desired_capabilities: self.symbols(),
                properties: self.maybe(Self::map),
            }
            .into(),
            Begin {
                remote_channel: self.maybe(|d| d.number() as u16),
                next_outgoing_id: self.number(),
                incoming_window: self.number(),
                outgoing_window: self.number(),
                handle_max: self.number(),
                offered_capabilities: self.symbols(),
                desired_capabilities: self.symbols(),
                properties: self.maybe(Self::map),
            }
            .into(),
            Attach {
                name: self.text(),
                handle: self.number(),
                role: self.role(),
                snd_settle_mode: [SenderSettleMode::Unsettled, SenderSettleMode::Settled, SenderSettleMode::Mixed]
                    [self.number() as usize % 3],
                rcv_settle_mode: if self.coin() { ReceiverSettleMode::First } else { ReceiverSettleMode::Second },
                source: self.maybe(Self::source),
                target: self.maybe(Self::target),
                unsettled: self.maybe(Self::map),
                incomplete_unsettled: self.coin(),
                initial_delivery_count: self.maybe(Self::number),
                max_message_size: self.maybe(|d| u64::from(d.number()) << 4),
                offered_capabilities: self.symbols(),
                desired_capabilities: self.symbols(),
                properties: self.maybe(Self::map),
            }
            .into(),
            Flow {
                next_incoming_id: self.maybe(Self::number),
                incoming_window: self.number(),
                next_outgoing_id: self.number(),
                outgoing_window: self.number(),
                handle: self.maybe(Self::number),
                delivery_count: self.maybe(Self::number),
                link_credit: self.maybe(Self::number),
                available: self.maybe(Self::number),
                drain: self.coin(),
                echo: self.coin(),
                properties: self.maybe(Self::map),
            }
            .into(),
            Transfer {
                handle: self.number(),
                delivery_id: self.maybe(Self::number),
                delivery_tag: self.maybe(Self::binary),
                message_format: self.maybe(Self::number),
                settled: self.maybe(Self::coin),
                more: self.coin(),
                rcv_settle_mode: self.maybe(|_| ReceiverSettleMode::Second),
                state: self.maybe(Self::state),
                resume: self.coin(),
                aborted: self.coin(),
                batchable: self.coin(),
            }
            .into(),
            Disposition {
                role: self.role(),
                first: self.number(),
                last: self.maybe(Self::number),
                settled: self.coin(),
                state: self.maybe(Self::state),
                batchable: self.coin(),
            }
            .into(),
            Detach { handle: self.number(), closed: self.coin(), error: self.maybe(Self::error) }.into(),
            End { error: self.maybe(Self::error) }.into(),
            Close { error: self.maybe(Self::error) }.into(),
        ]
    }

    /// One of each performative of a SASL frame.
    fn sasl(&mut self) -> [SaslPerformative<'p>; 5] {
        let codes = [SaslCode::Ok, SaslCode::Auth, SaslCode::Sys, SaslCode::SysPerm, SaslCode::SysTemp];
        [
            SaslMechanisms { sasl_server_mechanisms: Symbols::from_slice(self.symbols) }.into(),
            SaslInit {
                mechanism: self.symbol(),
                initial_response: self.maybe(Self::binary),
                hostname: self.maybe(Self::text),
            }
            .into(),
            SaslChallenge { challenge: self.binary() }.into(),
            SaslResponse { response: self.binary() }.into(),
            SaslOutcome { code: codes[self.number() as usize % 5], additional_data: self.maybe(Self::binary) }.into(),
        ]
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_value_is_read_as_it_was_written(tree in tree()) {
        let mut bytes = Vec::new();
        put(&mut bytes, &tree);
        let value = Value::from_encoded(&bytes, &limits()).expect("well formed");
        prop_assert!(same(value.data(), &tree));
        prop_assert_eq!(value.as_bytes(), &bytes[..]);
        crate::fuzz::value(&bytes);
    }

    #[test]
    fn any_performative_is_read_as_it_was_written(pool in pool()) {
        let symbols: Vec<&str> = pool.symbols.iter().map(String::as_str).collect();
        let mut draw = Draw { pool: &pool, symbols: &symbols, next: 0 };
        let mut out = Vec::new();
        for performative in draw.performatives() {
            out.clear();
            performative.encode(&mut out);
            prop_assert_eq!(Performative::decode(&out, &limits()), Ok(Some((performative, &[][..]))));
            // No byte can be missed.
            for cut in 0..out.len() {
                prop_assert!(!matches!(Performative::decode(&out[..cut], &limits()), Ok(Some(_))));
            }
        }
        for performative in draw.sasl() {
            out.clear();
            performative.encode(&mut out);
            prop_assert_eq!(SaslPerformative::decode(&out, &limits()), Ok(performative));
        }
    }

    #[test]
    fn any_section_and_transaction_type_is_read_as_it_was_written(pool in pool()) {
        let symbols: Vec<&str> = pool.symbols.iter().map(String::as_str).collect();
        let mut d = Draw { pool: &pool, symbols: &symbols, next: 0 };
        let mut out = Vec::new();
        let header = Header {
            durable: d.maybe(Draw::coin),
            priority: d.maybe(|d| d.number() as u8),
            ttl: d.maybe(Draw::number),
            first_acquirer: d.maybe(Draw::coin),
            delivery_count: d.maybe(Draw::number),
        };
        header.encode(&mut out);
        prop_assert_eq!(Header::decode(&out, &limits()), Ok((header, &[][..])));
        out.clear();
        let properties = Properties {
            message_id: d.maybe(Draw::message_id),
            user_id: d.maybe(Draw::binary),
            to: d.maybe(Draw::text),
            subject: d.maybe(Draw::text),
            reply_to: d.maybe(Draw::text),
            correlation_id: d.maybe(Draw::message_id),
            content_type: d.maybe(Draw::symbol),
            content_encoding: d.maybe(Draw::symbol),
            absolute_expiry_time: d.maybe(|d| i64::from(d.number()) << 10),
            creation_time: d.maybe(|d| -i64::from(d.number())),
            group_id: d.maybe(Draw::text),
            group_sequence: d.maybe(Draw::number),
            reply_to_group_id: d.maybe(Draw::text),
        };
        properties.encode(&mut out);
        prop_assert_eq!(Properties::decode(&out, &limits()), Ok((properties, &[][..])));
        out.clear();
        let declare = Declare { global_id: d.maybe(Draw::value) };
        declare.encode(&mut out);
        prop_assert_eq!(Declare::decode(&out, &limits()), Ok((declare, &[][..])));
        out.clear();
        let discharge = Discharge { txn_id: d.binary(), fail: d.coin() };
        discharge.encode(&mut out);
        prop_assert_eq!(Discharge::decode(&out, &limits()), Ok((discharge, &[][..])));
    }
}
