//! The composite types of part 4 of the standard, transactions. Made by `cargo xtask codegen` from
//! `standard.toml`: change that, not this.

use crate::codec::cursor::{Bounds, Cursor};
use crate::codec::encode::{self, FieldsWriter};
use crate::codec::error::DecodeError;
use crate::codec::fields::{Fields, at, described, required};
use crate::codec::union::Outcome;
use crate::codec::value::{Symbols, Value};
use crate::limits::Limits;
use alloc::vec::Vec;

/// The target of a link that controls transactions.
//= amqp10 4.5.1
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coordinator<'a> {
    /// What the coordinator can do, or is asked for.
    pub capabilities: Symbols<'a>,
}

impl<'a> Coordinator<'a> {
    /// Its name in the standard.
    pub const NAME: &'static str = "coordinator";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x30;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:coordinator:list";

    /// Decodes it from the start of `bytes`; returns what follows it too.
    ///
    /// # Errors
    /// What is wrong with the bytes, by field.
    pub fn decode(bytes: &'a [u8], limits: &Limits) -> Result<(Self, &'a [u8]), DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let value = Self::read(&mut cursor, Bounds::parsed(limits))?;
        Ok((value, cursor.rest()))
    }

    pub(crate) fn read(cursor: &mut Cursor<'a>, bounds: Bounds) -> Result<Self, DecodeError> {
        described(cursor, Self::CODE, Self::SYMBOL, Self::NAME)?;
        Self::read_fields(cursor, bounds)
    }

    /// Reads the list behind the descriptor.
    pub(crate) fn read_fields(cursor: &mut Cursor<'a>, bounds: Bounds) -> Result<Self, DecodeError> {
        let mut fields = Fields::open(cursor, bounds, Self::NAME)?;
        let value = Self { capabilities: fields.symbols().map_err(at("coordinator", "capabilities"))? };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x30);
        if self.capabilities.is_empty() {
            w.null()
        } else {
            encode::put_symbols(w.field(), &self.capabilities)
        }
        w.finish();
    }
}

/// Body of a message that begins a transaction.
//= amqp10 4.5.2
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Declare<'a> {
    /// Name of a global transaction.
    pub global_id: Option<Value<'a>>,
}

impl<'a> Declare<'a> {
    /// Its name in the standard.
    pub const NAME: &'static str = "declare";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x31;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:declare:list";

    /// Decodes it from the start of `bytes`; returns what follows it too.
    ///
    /// # Errors
    /// What is wrong with the bytes, by field.
    pub fn decode(bytes: &'a [u8], limits: &Limits) -> Result<(Self, &'a [u8]), DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let value = Self::read(&mut cursor, Bounds::parsed(limits))?;
        Ok((value, cursor.rest()))
    }

    pub(crate) fn read(cursor: &mut Cursor<'a>, bounds: Bounds) -> Result<Self, DecodeError> {
        described(cursor, Self::CODE, Self::SYMBOL, Self::NAME)?;
        Self::read_fields(cursor, bounds)
    }

    /// Reads the list behind the descriptor.
    pub(crate) fn read_fields(cursor: &mut Cursor<'a>, bounds: Bounds) -> Result<Self, DecodeError> {
        let mut fields = Fields::open(cursor, bounds, Self::NAME)?;
        let value = Self { global_id: fields.value().map_err(at("declare", "global-id"))? };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x31);
        w.option(self.global_id, |out, value| encode::put_value(out, &value));
        w.finish();
    }
}

/// Body of a message that ends a transaction.
//= amqp10 4.5.3
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Discharge<'a> {
    /// The transaction.
    pub txn_id: &'a [u8],
    /// Roll back.
    pub fail: bool,
}

impl<'a> Discharge<'a> {
    /// Its name in the standard.
    pub const NAME: &'static str = "discharge";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x32;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:discharge:list";

    /// Decodes it from the start of `bytes`; returns what follows it too.
    ///
    /// # Errors
    /// What is wrong with the bytes, by field.
    pub fn decode(bytes: &'a [u8], limits: &Limits) -> Result<(Self, &'a [u8]), DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let value = Self::read(&mut cursor, Bounds::parsed(limits))?;
        Ok((value, cursor.rest()))
    }

    pub(crate) fn read(cursor: &mut Cursor<'a>, bounds: Bounds) -> Result<Self, DecodeError> {
        described(cursor, Self::CODE, Self::SYMBOL, Self::NAME)?;
        Self::read_fields(cursor, bounds)
    }

    /// Reads the list behind the descriptor.
    pub(crate) fn read_fields(cursor: &mut Cursor<'a>, bounds: Bounds) -> Result<Self, DecodeError> {
        let mut fields = Fields::open(cursor, bounds, Self::NAME)?;
        let value = Self {
            txn_id: fields.binary().and_then(required).map_err(at("discharge", "txn-id"))?,
            fail: fields.boolean().map_err(at("discharge", "fail"))?.unwrap_or(false),
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x32);
        encode::put_binary(w.field(), self.txn_id);
        w.unless(self.fail, false, encode::put_boolean);
        w.finish();
    }
}

/// Outcome of a declare.
//= amqp10 4.5.5
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Declared<'a> {
    /// The transaction that was begun.
    pub txn_id: &'a [u8],
}

impl<'a> Declared<'a> {
    /// Its name in the standard.
    pub const NAME: &'static str = "declared";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x33;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:declared:list";

    /// Decodes it from the start of `bytes`; returns what follows it too.
    ///
    /// # Errors
    /// What is wrong with the bytes, by field.
    pub fn decode(bytes: &'a [u8], limits: &Limits) -> Result<(Self, &'a [u8]), DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let value = Self::read(&mut cursor, Bounds::parsed(limits))?;
        Ok((value, cursor.rest()))
    }

    pub(crate) fn read(cursor: &mut Cursor<'a>, bounds: Bounds) -> Result<Self, DecodeError> {
        described(cursor, Self::CODE, Self::SYMBOL, Self::NAME)?;
        Self::read_fields(cursor, bounds)
    }

    /// Reads the list behind the descriptor.
    pub(crate) fn read_fields(cursor: &mut Cursor<'a>, bounds: Bounds) -> Result<Self, DecodeError> {
        let mut fields = Fields::open(cursor, bounds, Self::NAME)?;
        let value = Self { txn_id: fields.binary().and_then(required).map_err(at("declared", "txn-id"))? };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x33);
        encode::put_binary(w.field(), self.txn_id);
        w.finish();
    }
}

/// State of a delivery that belongs to a transaction.
//= amqp10 4.5.8
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransactionalState<'a> {
    /// The transaction.
    pub txn_id: &'a [u8],
    /// The outcome, once the transaction commits.
    pub outcome: Option<Outcome<'a>>,
}

impl<'a> TransactionalState<'a> {
    /// Its name in the standard.
    pub const NAME: &'static str = "transactional-state";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x34;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:transactional-state:list";

    /// Decodes it from the start of `bytes`; returns what follows it too.
    ///
    /// # Errors
    /// What is wrong with the bytes, by field.
    pub fn decode(bytes: &'a [u8], limits: &Limits) -> Result<(Self, &'a [u8]), DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let value = Self::read(&mut cursor, Bounds::parsed(limits))?;
        Ok((value, cursor.rest()))
    }

    pub(crate) fn read(cursor: &mut Cursor<'a>, bounds: Bounds) -> Result<Self, DecodeError> {
        described(cursor, Self::CODE, Self::SYMBOL, Self::NAME)?;
        Self::read_fields(cursor, bounds)
    }

    /// Reads the list behind the descriptor.
    pub(crate) fn read_fields(cursor: &mut Cursor<'a>, bounds: Bounds) -> Result<Self, DecodeError> {
        let mut fields = Fields::open(cursor, bounds, Self::NAME)?;
        let value = Self {
            txn_id: fields.binary().and_then(required).map_err(at("transactional-state", "txn-id"))?,
            outcome: match fields.composite().map_err(at("transactional-state", "outcome"))? {
                Some(cursor) => Some(Outcome::read(cursor, bounds)?),
                None => None,
            },
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x34);
        encode::put_binary(w.field(), self.txn_id);
        w.option(self.outcome, |out, value| value.encode(out));
        w.finish();
    }
}
