//! The composite types of part 5 of the standard, security. Made by `cargo xtask codegen` from
//! `standard.toml`: change that, not this.

use super::SaslCode;
use crate::codec::cursor::{Bounds, Cursor};
use crate::codec::encode::{self, FieldsWriter};
use crate::codec::error::DecodeError;
use crate::codec::fields::{Fields, at, described, required, required_symbols};
use crate::codec::value::Symbols;
use crate::limits::Limits;
use alloc::vec::Vec;

/// The server's mechanisms, strongest first.
//= amqp10 5.3.3.1
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SaslMechanisms<'a> {
    /// The mechanisms.
    pub sasl_server_mechanisms: Symbols<'a>,
}

impl<'a> SaslMechanisms<'a> {
    /// Its name in the standard.
    pub const NAME: &'static str = "sasl-mechanisms";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x40;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:sasl-mechanisms:list";

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
            sasl_server_mechanisms: fields
                .symbols()
                .and_then(required_symbols)
                .map_err(at("sasl-mechanisms", "sasl-server-mechanisms"))?,
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x40);
        encode::put_symbols(w.field(), &self.sasl_server_mechanisms);
        w.finish();
    }
}

/// The client's choice of a mechanism.
//= amqp10 5.3.3.2
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SaslInit<'a> {
    /// The mechanism.
    pub mechanism: &'a str,
    /// First response.
    pub initial_response: Option<&'a [u8]>,
    /// The virtual host that is meant.
    pub hostname: Option<&'a str>,
}

impl<'a> SaslInit<'a> {
    /// Its name in the standard.
    pub const NAME: &'static str = "sasl-init";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x41;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:sasl-init:list";

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
            mechanism: fields.symbol().and_then(required).map_err(at("sasl-init", "mechanism"))?,
            initial_response: fields.binary().map_err(at("sasl-init", "initial-response"))?,
            hostname: fields.string().map_err(at("sasl-init", "hostname"))?,
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x41);
        encode::put_symbol(w.field(), self.mechanism);
        w.option(self.initial_response, encode::put_binary);
        w.option(self.hostname, encode::put_string);
        w.finish();
    }
}

/// A challenge of the server.
//= amqp10 5.3.3.3
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SaslChallenge<'a> {
    /// The challenge, opaque here.
    pub challenge: &'a [u8],
}

impl<'a> SaslChallenge<'a> {
    /// Its name in the standard.
    pub const NAME: &'static str = "sasl-challenge";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x42;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:sasl-challenge:list";

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
        let value = Self { challenge: fields.binary().and_then(required).map_err(at("sasl-challenge", "challenge"))? };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x42);
        encode::put_binary(w.field(), self.challenge);
        w.finish();
    }
}

/// A response of the client.
//= amqp10 5.3.3.4
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SaslResponse<'a> {
    /// The response, opaque here.
    pub response: &'a [u8],
}

impl<'a> SaslResponse<'a> {
    /// Its name in the standard.
    pub const NAME: &'static str = "sasl-response";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x43;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:sasl-response:list";

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
        let value = Self { response: fields.binary().and_then(required).map_err(at("sasl-response", "response"))? };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x43);
        encode::put_binary(w.field(), self.response);
        w.finish();
    }
}

/// The end of the SASL exchange.
//= amqp10 5.3.3.5
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SaslOutcome<'a> {
    /// How it ended.
    pub code: SaslCode,
    /// Further data of the mechanism.
    pub additional_data: Option<&'a [u8]>,
}

impl<'a> SaslOutcome<'a> {
    /// Its name in the standard.
    pub const NAME: &'static str = "sasl-outcome";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x44;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:sasl-outcome:list";

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
            code: SaslCode::read(&mut fields).and_then(required).map_err(at("sasl-outcome", "code"))?,
            additional_data: fields.binary().map_err(at("sasl-outcome", "additional-data"))?,
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x44);
        self.code.encode(w.field());
        w.option(self.additional_data, encode::put_binary);
        w.finish();
    }
}
