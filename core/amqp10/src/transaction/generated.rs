//! Packhorse's own composite types. Made by `cargo xtask codegen` from
//! `extension.toml`: change that, not this.

use crate::codec::cursor::{Bounds, Cursor};
use crate::codec::encode::{self, FieldsWriter};
use crate::codec::fields::{Fields, at, described, required};
use crate::codec::{DecodeError, Fault, List};
use crate::limits::Limits;
use alloc::vec::Vec;

/// What became of a commit.
//= amqp-xa 3
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TxOutcome {
    /// It is committed.
    Committed,
    /// It is not, and never will be.
    RolledBack,
    /// It was another broker's.
    NotMine,
    /// The client session, or so old a commit of it, is forgotten.
    #[default]
    Expired,
}

impl TxOutcome {
    /// The value on the wire.
    #[must_use]
    pub fn wire(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::RolledBack => "rolled-back",
            Self::NotMine => "not-mine",
            Self::Expired => "expired",
        }
    }

    #[inline]
    pub(super) fn read(fields: &mut Fields<'_>) -> Result<Option<Self>, Fault> {
        Ok(match fields.symbol()? {
            None => None,
            Some("committed") => Some(Self::Committed),
            Some("rolled-back") => Some(Self::RolledBack),
            Some("not-mine") => Some(Self::NotMine),
            Some("expired") => Some(Self::Expired),
            Some(_) => return Err(Fault::BadChoice { expected: "tx-outcome" }),
        })
    }

    #[inline]
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        encode::put_symbol(out, self.wire())
    }
}

/// The name of a branch.
//= amqp-xa 2.1
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XaXid<'a> {
    /// Its format; not -1.
    pub format_id: i32,
    /// The global transaction, at most 64 bytes.
    pub global_id: &'a [u8],
    /// The branch, at most 64 bytes.
    pub branch_qualifier: &'a [u8],
}

impl<'a> XaXid<'a> {
    /// Its name.
    pub const NAME: &'static str = "xa-xid";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x5048_5253_0000_0001;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "packhorse:xa-xid:list";

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
            format_id: fields.int().and_then(required).map_err(at("xa-xid", "format-id"))?,
            global_id: fields.binary().and_then(required).map_err(at("xa-xid", "global-id"))?,
            branch_qualifier: fields.binary().and_then(required).map_err(at("xa-xid", "branch-qualifier"))?,
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin_wide(out, 0x5048_5253_0000_0001);
        encode::put_int(w.field(), self.format_id);
        encode::put_binary(w.field(), self.global_id);
        encode::put_binary(w.field(), self.branch_qualifier);
        w.finish();
    }
}

/// The global-id of a declare that starts, joins or resumes a branch.
//= amqp-xa 2.2
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XaStart<'a> {
    /// The branch: its format.
    pub format_id: i32,
    /// The branch: its global transaction.
    pub global_id: &'a [u8],
    /// The branch: its qualifier.
    pub branch_qualifier: &'a [u8],
    /// 0 start, 0x00200000 join, 0x08000000 resume.
    pub flags: u32,
    /// Of a branch that starts: milliseconds; 0 as the broker likes.
    pub timeout: u64,
}

impl<'a> XaStart<'a> {
    /// Its name.
    pub const NAME: &'static str = "xa-start";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x5048_5253_0000_0002;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "packhorse:xa-start:list";

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
            format_id: fields.int().and_then(required).map_err(at("xa-start", "format-id"))?,
            global_id: fields.binary().and_then(required).map_err(at("xa-start", "global-id"))?,
            branch_qualifier: fields.binary().and_then(required).map_err(at("xa-start", "branch-qualifier"))?,
            flags: fields.uint().map_err(at("xa-start", "flags"))?.unwrap_or(0),
            timeout: fields.ulong().map_err(at("xa-start", "timeout"))?.unwrap_or(0),
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin_wide(out, 0x5048_5253_0000_0002);
        encode::put_int(w.field(), self.format_id);
        encode::put_binary(w.field(), self.global_id);
        encode::put_binary(w.field(), self.branch_qualifier);
        w.unless(self.flags, 0, encode::put_uint);
        w.unless(self.timeout, 0, encode::put_ulong);
        w.finish();
    }
}

/// Ends, suspends or fails the work of this link in a branch.
//= amqp-xa 2.3
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XaEnd<'a> {
    /// The branch: its format.
    pub format_id: i32,
    /// The branch: its global transaction.
    pub global_id: &'a [u8],
    /// The branch: its qualifier.
    pub branch_qualifier: &'a [u8],
    /// 0x04000000 success, 0x02000000 suspend, 0x20000000 fail.
    pub flags: u32,
}

impl<'a> XaEnd<'a> {
    /// Its name.
    pub const NAME: &'static str = "xa-end";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x5048_5253_0000_0003;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "packhorse:xa-end:list";

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
            format_id: fields.int().and_then(required).map_err(at("xa-end", "format-id"))?,
            global_id: fields.binary().and_then(required).map_err(at("xa-end", "global-id"))?,
            branch_qualifier: fields.binary().and_then(required).map_err(at("xa-end", "branch-qualifier"))?,
            flags: fields.uint().and_then(required).map_err(at("xa-end", "flags"))?,
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin_wide(out, 0x5048_5253_0000_0003);
        encode::put_int(w.field(), self.format_id);
        encode::put_binary(w.field(), self.global_id);
        encode::put_binary(w.field(), self.branch_qualifier);
        encode::put_uint(w.field(), self.flags);
        w.finish();
    }
}

/// Prepares a branch.
//= amqp-xa 2.3
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XaPrepare<'a> {
    /// The branch: its format.
    pub format_id: i32,
    /// The branch: its global transaction.
    pub global_id: &'a [u8],
    /// The branch: its qualifier.
    pub branch_qualifier: &'a [u8],
}

impl<'a> XaPrepare<'a> {
    /// Its name.
    pub const NAME: &'static str = "xa-prepare";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x5048_5253_0000_0004;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "packhorse:xa-prepare:list";

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
            format_id: fields.int().and_then(required).map_err(at("xa-prepare", "format-id"))?,
            global_id: fields.binary().and_then(required).map_err(at("xa-prepare", "global-id"))?,
            branch_qualifier: fields.binary().and_then(required).map_err(at("xa-prepare", "branch-qualifier"))?,
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin_wide(out, 0x5048_5253_0000_0004);
        encode::put_int(w.field(), self.format_id);
        encode::put_binary(w.field(), self.global_id);
        encode::put_binary(w.field(), self.branch_qualifier);
        w.finish();
    }
}

/// Commits a branch.
//= amqp-xa 2.3
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XaCommit<'a> {
    /// The branch: its format.
    pub format_id: i32,
    /// The branch: its global transaction.
    pub global_id: &'a [u8],
    /// The branch: its qualifier.
    pub branch_qualifier: &'a [u8],
    /// It is not prepared.
    pub one_phase: bool,
}

impl<'a> XaCommit<'a> {
    /// Its name.
    pub const NAME: &'static str = "xa-commit";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x5048_5253_0000_0005;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "packhorse:xa-commit:list";

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
            format_id: fields.int().and_then(required).map_err(at("xa-commit", "format-id"))?,
            global_id: fields.binary().and_then(required).map_err(at("xa-commit", "global-id"))?,
            branch_qualifier: fields.binary().and_then(required).map_err(at("xa-commit", "branch-qualifier"))?,
            one_phase: fields.boolean().map_err(at("xa-commit", "one-phase"))?.unwrap_or(false),
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin_wide(out, 0x5048_5253_0000_0005);
        encode::put_int(w.field(), self.format_id);
        encode::put_binary(w.field(), self.global_id);
        encode::put_binary(w.field(), self.branch_qualifier);
        w.unless(self.one_phase, false, encode::put_boolean);
        w.finish();
    }
}

/// Rolls a branch back.
//= amqp-xa 2.3
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XaRollback<'a> {
    /// The branch: its format.
    pub format_id: i32,
    /// The branch: its global transaction.
    pub global_id: &'a [u8],
    /// The branch: its qualifier.
    pub branch_qualifier: &'a [u8],
}

impl<'a> XaRollback<'a> {
    /// Its name.
    pub const NAME: &'static str = "xa-rollback";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x5048_5253_0000_0006;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "packhorse:xa-rollback:list";

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
            format_id: fields.int().and_then(required).map_err(at("xa-rollback", "format-id"))?,
            global_id: fields.binary().and_then(required).map_err(at("xa-rollback", "global-id"))?,
            branch_qualifier: fields.binary().and_then(required).map_err(at("xa-rollback", "branch-qualifier"))?,
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin_wide(out, 0x5048_5253_0000_0006);
        encode::put_int(w.field(), self.format_id);
        encode::put_binary(w.field(), self.global_id);
        encode::put_binary(w.field(), self.branch_qualifier);
        w.finish();
    }
}

/// Forgets how a branch was decided heuristically.
//= amqp-xa 2.3
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XaForget<'a> {
    /// The branch: its format.
    pub format_id: i32,
    /// The branch: its global transaction.
    pub global_id: &'a [u8],
    /// The branch: its qualifier.
    pub branch_qualifier: &'a [u8],
}

impl<'a> XaForget<'a> {
    /// Its name.
    pub const NAME: &'static str = "xa-forget";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x5048_5253_0000_0007;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "packhorse:xa-forget:list";

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
            format_id: fields.int().and_then(required).map_err(at("xa-forget", "format-id"))?,
            global_id: fields.binary().and_then(required).map_err(at("xa-forget", "global-id"))?,
            branch_qualifier: fields.binary().and_then(required).map_err(at("xa-forget", "branch-qualifier"))?,
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin_wide(out, 0x5048_5253_0000_0007);
        encode::put_int(w.field(), self.format_id);
        encode::put_binary(w.field(), self.global_id);
        encode::put_binary(w.field(), self.branch_qualifier);
        w.finish();
    }
}

/// Asks for branches that are prepared or heuristically decided.
//= amqp-xa 2.4
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XaRecover<'a> {
    /// The last one of the page before; none for the first page.
    pub after: Option<XaXid<'a>>,
    /// Most names in the answer, from 1 on.
    pub max: u32,
}

impl Default for XaRecover<'_> {
    fn default() -> Self {
        Self { after: None, max: 100 }
    }
}

impl<'a> XaRecover<'a> {
    /// Its name.
    pub const NAME: &'static str = "xa-recover";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x5048_5253_0000_0008;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "packhorse:xa-recover:list";

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
            after: match fields.composite().map_err(at("xa-recover", "after"))? {
                Some(cursor) => Some(XaXid::read(cursor, bounds)?),
                None => None,
            },
            max: fields.uint().map_err(at("xa-recover", "max"))?.unwrap_or(100),
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin_wide(out, 0x5048_5253_0000_0008);
        w.option(self.after, |out, value| value.encode(out));
        w.unless(self.max, 100, encode::put_uint);
        w.finish();
    }
}

/// Outcome of a request: a code of XA, and what was asked for.
//= amqp-xa 2.5
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XaResult<'a> {
    /// The code, as XA numbers it.
    pub code: i32,
    /// Of a recover: the branches, each an xa-xid.
    pub xids: Option<List<'a>>,
    /// Of a recover: there are more after the last of them.
    pub more: bool,
    /// For people: why.
    pub description: Option<&'a str>,
}

impl<'a> XaResult<'a> {
    /// Its name.
    pub const NAME: &'static str = "xa-result";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x5048_5253_0000_0009;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "packhorse:xa-result:list";

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
            code: fields.int().and_then(required).map_err(at("xa-result", "code"))?,
            xids: fields.list().map_err(at("xa-result", "xids"))?,
            more: fields.boolean().map_err(at("xa-result", "more"))?.unwrap_or(false),
            description: fields.string().map_err(at("xa-result", "description"))?,
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin_wide(out, 0x5048_5253_0000_0009);
        encode::put_int(w.field(), self.code);
        w.option(self.xids, |out, list| encode::put_list(out, &list));
        w.unless(self.more, false, encode::put_boolean);
        w.option(self.description, encode::put_string);
        w.finish();
    }
}

/// A discharge that commits a local transaction under a name, so that its outcome can be asked for.
//= amqp-xa 3
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxCommit<'a> {
    /// The transaction.
    pub txn_id: &'a [u8],
    /// The broker that it is sent to.
    pub broker: [u8; 16],
    /// The client session.
    pub session: [u8; 16],
    /// The number of the commit in that session.
    pub counter: u64,
}

impl<'a> TxCommit<'a> {
    /// Its name.
    pub const NAME: &'static str = "tx-commit";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x5048_5253_0000_0010;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "packhorse:tx-commit:list";

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
            txn_id: fields.binary().and_then(required).map_err(at("tx-commit", "txn-id"))?,
            broker: fields.uuid().and_then(required).map_err(at("tx-commit", "broker"))?,
            session: fields.uuid().and_then(required).map_err(at("tx-commit", "session"))?,
            counter: fields.ulong().and_then(required).map_err(at("tx-commit", "counter"))?,
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin_wide(out, 0x5048_5253_0000_0010);
        encode::put_binary(w.field(), self.txn_id);
        encode::put_uuid(w.field(), self.broker);
        encode::put_uuid(w.field(), self.session);
        encode::put_ulong(w.field(), self.counter);
        w.finish();
    }
}

/// Asks what became of a commit, and keeps it from becoming anything else.
//= amqp-xa 3
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxStatus {
    /// The broker that it was sent to.
    pub broker: [u8; 16],
    /// The client session.
    pub session: [u8; 16],
    /// The number of the commit in that session.
    pub counter: u64,
}

impl TxStatus {
    /// Its name.
    pub const NAME: &'static str = "tx-status";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x5048_5253_0000_0011;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "packhorse:tx-status:list";

    /// Decodes it from the start of `bytes`; returns what follows it too.
    ///
    /// # Errors
    /// What is wrong with the bytes, by field.
    pub fn decode<'b>(bytes: &'b [u8], limits: &Limits) -> Result<(Self, &'b [u8]), DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let value = Self::read(&mut cursor, Bounds::parsed(limits))?;
        Ok((value, cursor.rest()))
    }

    pub(crate) fn read(cursor: &mut Cursor<'_>, bounds: Bounds) -> Result<Self, DecodeError> {
        described(cursor, Self::CODE, Self::SYMBOL, Self::NAME)?;
        Self::read_fields(cursor, bounds)
    }

    /// Reads the list behind the descriptor.
    pub(crate) fn read_fields(cursor: &mut Cursor<'_>, bounds: Bounds) -> Result<Self, DecodeError> {
        let mut fields = Fields::open(cursor, bounds, Self::NAME)?;
        let value = Self {
            broker: fields.uuid().and_then(required).map_err(at("tx-status", "broker"))?,
            session: fields.uuid().and_then(required).map_err(at("tx-status", "session"))?,
            counter: fields.ulong().and_then(required).map_err(at("tx-status", "counter"))?,
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin_wide(out, 0x5048_5253_0000_0011);
        encode::put_uuid(w.field(), self.broker);
        encode::put_uuid(w.field(), self.session);
        encode::put_ulong(w.field(), self.counter);
        w.finish();
    }
}

/// Outcome of a tx-status.
//= amqp-xa 3
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxStatusResult {
    /// What became of it.
    pub outcome: TxOutcome,
}

impl TxStatusResult {
    /// Its name.
    pub const NAME: &'static str = "tx-status-result";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x5048_5253_0000_0012;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "packhorse:tx-status-result:list";

    /// Decodes it from the start of `bytes`; returns what follows it too.
    ///
    /// # Errors
    /// What is wrong with the bytes, by field.
    pub fn decode<'b>(bytes: &'b [u8], limits: &Limits) -> Result<(Self, &'b [u8]), DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let value = Self::read(&mut cursor, Bounds::parsed(limits))?;
        Ok((value, cursor.rest()))
    }

    pub(crate) fn read(cursor: &mut Cursor<'_>, bounds: Bounds) -> Result<Self, DecodeError> {
        described(cursor, Self::CODE, Self::SYMBOL, Self::NAME)?;
        Self::read_fields(cursor, bounds)
    }

    /// Reads the list behind the descriptor.
    pub(crate) fn read_fields(cursor: &mut Cursor<'_>, bounds: Bounds) -> Result<Self, DecodeError> {
        let mut fields = Fields::open(cursor, bounds, Self::NAME)?;
        let value = Self {
            outcome: TxOutcome::read(&mut fields).and_then(required).map_err(at("tx-status-result", "outcome"))?,
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin_wide(out, 0x5048_5253_0000_0012);
        self.outcome.encode(w.field());
        w.finish();
    }
}
