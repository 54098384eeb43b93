//! `cargo xtask codegen`: makes `core/amqp10/src/codec/generated/` from `core/amqp10/standard.toml`,
//! `core/amqp10/src/transaction/generated.rs` from `core/amqp10/extension.toml`, and has the tables of
//! `docs/durability-report.md` made. It turns a table into plain structs and straight-line code; rules of the protocol do not
//! belong here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;

/// What tells the types of one source from those of another.
struct Origin {
    table: &'static str,
    /// The files that are made, one beside the other.
    files: &'static [File],
    /// What the made code uses: a path, and names there.
    uses: &'static [(&'static str, &'static [&'static str])],
    /// Whose sections are cited.
    cites: &'static str,
    /// The first word of symbolic descriptors.
    prefix: &'static str,
    /// The upper half of numeric descriptors.
    domain: u32,
    /// Enums of all types of a group: name, what it is, the group.
    unions: &'static [(&'static str, &'static str, &'static str)],
}

/// A file that is made.
struct File {
    path: &'static str,
    /// What it holds, in a word.
    about: &'static str,
    holds: Holds,
}

/// Which things stand in a file.
#[derive(Clone, Copy, PartialEq)]
enum Holds {
    All,
    Choices,
    Unions,
    /// Composite types of this part of the standard.
    Part(char),
}

/// Something made: what it is, its name, its text.
struct Made {
    what: Holds,
    name: String,
    text: String,
}

const ORIGINS: [Origin; 2] = [
    Origin {
        table: "core/amqp10/standard.toml",
        files: &[
            File {
                path: "core/amqp10/src/codec/generated/choices.rs",
                about: "The restricted types of the standard",
                holds: Holds::Choices,
            },
            File {
                path: "core/amqp10/src/codec/generated/transport.rs",
                about: "The composite types of part 2 of the standard, transport",
                holds: Holds::Part('2'),
            },
            File {
                path: "core/amqp10/src/codec/generated/messaging.rs",
                about: "The composite types of part 3 of the standard, messaging",
                holds: Holds::Part('3'),
            },
            File {
                path: "core/amqp10/src/codec/generated/transactions.rs",
                about: "The composite types of part 4 of the standard, transactions",
                holds: Holds::Part('4'),
            },
            File {
                path: "core/amqp10/src/codec/generated/security.rs",
                about: "The composite types of part 5 of the standard, security",
                holds: Holds::Part('5'),
            },
            File {
                path: "core/amqp10/src/codec/generated/performatives.rs",
                about: "What the bodies of frames can be",
                holds: Holds::Unions,
            },
        ],
        uses: &[
            ("alloc::vec", &["Vec"]),
            ("crate::codec::cursor", &["Bounds", "Cursor"]),
            ("crate::codec::encode", &["self", "FieldsWriter"]),
            ("crate::codec::error", &["DecodeError", "Fault"]),
            (
                "crate::codec::fields",
                &["Fields", "at", "described", "performative_code", "required", "required_symbols"],
            ),
            ("crate::codec::union", &["AttachTarget", "DeliveryState", "MessageId", "Outcome"]),
            ("crate::codec::value", &["Map", "Symbols", "Value"]),
            ("crate::limits", &["Limits"]),
        ],
        cites: "amqp10",
        prefix: "amqp",
        domain: 0,
        unions: &[
            ("Performative", "The body of an AMQP frame.", "performative"),
            ("SaslPerformative", "The body of a SASL frame.", "sasl"),
        ],
    },
    Origin {
        table: "core/amqp10/extension.toml",
        files: &[File {
            path: "core/amqp10/src/transaction/generated.rs",
            about: "Packhorse's own composite types",
            holds: Holds::All,
        }],
        uses: &[
            ("alloc::vec", &["Vec"]),
            ("crate::codec", &["DecodeError", "Fault", "List"]),
            ("crate::codec::cursor", &["Bounds", "Cursor"]),
            ("crate::codec::encode", &["self", "FieldsWriter"]),
            ("crate::codec::fields", &["Fields", "at", "described", "required"]),
            ("crate::limits", &["Limits"]),
        ],
        cites: "amqp-xa",
        prefix: "packhorse",
        // "PHRS": no number assigned by IANA is that large.
        domain: 0x5048_5253,
        unions: &[],
    },
];

/// Writes the generated files; with `--check`, fails when one is not what its sources give.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let root = &crate::workspace::root();
    let check = match args {
        [] => false,
        [flag] if flag == "--check" => true,
        _ => return Err("usage: cargo xtask codegen [--check]".into()),
    };
    for origin in &ORIGINS {
        let source = origin.table;
        let table = read(&root.join(source))?;
        let table: Table = toml::from_str(&table).map_err(|e| format!("{source}: {e}"))?;
        let made = generate(origin, &table).map_err(|e| format!("{source}: {e}"))?;
        for file in origin.files {
            let text = format(root, &file.text(origin, &made))?;
            let path = root.join(file.path);
            if !check {
                std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
            } else if read(&path)? != text {
                return Err(format!("{} is not what {source} gives: run `cargo xtask codegen`", file.path));
            }
        }
    }
    if check { crate::durability::check(root) } else { crate::durability::write(root) }
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

impl File {
    /// All of it, not formatted.
    fn text(&self, origin: &Origin, made: &[Made]) -> String {
        let here = |made: &&Made| self.holds == Holds::All || made.what == self.holds;
        let body: String = made.iter().filter(here).map(|made| made.text.as_str()).collect();
        let code = body.lines().filter(|line| !line.starts_with("//"));
        let words: BTreeSet<&str> =
            code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_')).collect();
        let mut out = format!("//! {}. Made by `cargo xtask codegen` from\n", self.about);
        let table = origin.table.rsplit('/').next().unwrap_or(origin.table);
        let _ = writeln!(out, "//! `{table}`: change that, not this.\n");
        let mut uses = |path: &str, names: &mut dyn Iterator<Item = &str>| {
            let names: Vec<&str> = names.collect();
            if !names.is_empty() {
                let _ = writeln!(out, "use {path}::{{{}}};", names.join(", "));
            }
        };
        let elsewhere = made.iter().filter(|made| !here(made)).map(|made| made.name.as_str());
        uses("super", &mut elsewhere.filter(|name| words.contains(name)));
        for (path, names) in origin.uses {
            let module = format!("{}::", path.rsplit("::").next().unwrap_or(path));
            let used = |name: &&str| if *name == "self" { body.contains(&module) } else { words.contains(name) };
            uses(path, &mut names.iter().copied().filter(used));
        }
        out + &body
    }
}

/// The workspace's formatter, so that the file looks like written by hand and `cargo fmt` leaves it alone.
fn format(root: &Path, text: &str) -> Result<String, String> {
    let mut child = Command::new("rustfmt")
        .args(["--edition", "2024", "--config-path"])
        .arg(root.join("rustfmt.toml"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("rustfmt: {e}"))?;
    // rustfmt reads all before it writes, so that one pipe after the other is enough.
    let mut stdin = child.stdin.take().ok_or("rustfmt: no standard input")?;
    stdin.write_all(text.as_bytes()).map_err(|e| format!("rustfmt: {e}"))?;
    drop(stdin);
    let output = child.wait_with_output().map_err(|e| format!("rustfmt: {e}"))?;
    if !output.status.success() {
        return Err(format!("rustfmt: {}", output.status));
    }
    String::from_utf8(output.stdout).map_err(|e| format!("rustfmt: {e}"))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    choice: Vec<Choice>,
    r#type: Vec<Composite>,
}

/// A restricted type.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Choice {
    name: String,
    base: String,
    section: String,
    doc: String,
    default: String,
    values: String,
}

/// A composite type.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Composite {
    name: String,
    code: u8,
    section: String,
    group: String,
    doc: String,
    fields: String,
}

/// One line of a composite's fields.
struct Field {
    name: String,
    kind: Kind,
    mandatory: bool,
    default: Option<String>,
    doc: String,
}

/// What a field holds, as far as the code made for it differs.
#[derive(Clone, PartialEq)]
enum Kind {
    /// A primitive with a reader, a writer and a Rust type.
    Plain {
        name: &'static str,
        rust: &'static str,
    },
    /// Any number of symbols.
    Symbols,
    Map,
    List,
    Wildcard,
    /// A restricted type.
    Choice(String),
    /// A composite type, or a hand-written union of some.
    Nested {
        rust: String,
        borrows: bool,
    },
}

const PLAIN: [(&str, &str); 12] = [
    ("boolean", "bool"),
    ("ubyte", "u8"),
    ("ushort", "u16"),
    ("uint", "u32"),
    ("ulong", "u64"),
    ("int", "i32"),
    ("uuid", "[u8; 16]"),
    ("binary", "&'a [u8]"),
    ("string", "&'a str"),
    ("symbol", "&'a str"),
    ("timestamp", "i64"),
    ("message-id", "MessageId<'a>"),
];

/// All that a table gives, in its order.
fn generate(origin: &Origin, table: &Table) -> Result<Vec<Made>, String> {
    let mut borrows = BTreeMap::new();
    let mut types = Vec::new();
    for composite in &table.r#type {
        borrows.insert(composite.name.clone(), false);
    }
    // A type borrows if a field does; types are listed in any order, so repeat until nothing changes.
    loop {
        types.clear();
        for composite in &table.r#type {
            types.push((composite, fields(table, composite, &borrows)?));
        }
        let before = borrows.clone();
        for (composite, fields) in &types {
            borrows.insert(composite.name.clone(), fields.iter().any(|f| f.kind.borrows()));
        }
        if before == borrows {
            break;
        }
    }
    let mut made = Vec::new();
    for choice in &table.choice {
        let mut text = String::new();
        write_choice(&mut text, origin, choice)?;
        made.push(Made { what: Holds::Choices, name: camel(&choice.name), text });
    }
    for (composite, fields) in &types {
        let mut text = String::new();
        write_composite(&mut text, origin, table, composite, fields, borrows[&composite.name]);
        let part = composite.section.chars().next().ok_or_else(|| format!("{}: no section", composite.name))?;
        made.push(Made { what: Holds::Part(part), name: camel(&composite.name), text });
    }
    let of_group = |group: &str| -> Vec<&Composite> { table.r#type.iter().filter(|c| c.group == group).collect() };
    for (name, doc, group) in origin.unions {
        let mut text = String::new();
        write_union(&mut text, name, doc, &of_group(group), &borrows);
        made.push(Made { what: Holds::Unions, name: (*name).into(), text });
    }
    match made.iter().find(|made| !origin.files.iter().any(|f| f.holds == Holds::All || f.holds == made.what)) {
        Some(lost) => Err(format!("{}: no file holds its part of the standard", lost.name)),
        None => Ok(made),
    }
}

fn fields(table: &Table, composite: &Composite, borrows: &BTreeMap<String, bool>) -> Result<Vec<Field>, String> {
    let mut fields = Vec::new();
    for line in composite.fields.lines().filter(|line| !line.trim().is_empty()) {
        let wrong = |what: &str| format!("{}: {what}: {line}", composite.name);
        let (spec, doc) = line.split_once('|').ok_or_else(|| wrong("no `|` and no description"))?;
        let mut words = spec.split_whitespace();
        let name = words.next().ok_or_else(|| wrong("no name"))?.to_string();
        let kind = words.next().ok_or_else(|| wrong("no type"))?;
        let (mut mandatory, mut multiple, mut default) = (false, false, None);
        for flag in words {
            match flag {
                "mandatory" => mandatory = true,
                "multiple" => multiple = true,
                _ => default = Some(flag.strip_prefix('=').ok_or_else(|| wrong("unknown flag"))?.to_string()),
            }
        }
        let kind = match kind {
            "symbol" if multiple => Kind::Symbols,
            _ if multiple => return Err(wrong("only symbols can be multiple")),
            "map" => Kind::Map,
            "list" => Kind::List,
            "wildcard" => Kind::Wildcard,
            "state" => Kind::Nested { rust: "DeliveryState<'a>".into(), borrows: true },
            "outcome" => Kind::Nested { rust: "Outcome<'a>".into(), borrows: true },
            "terminus" => Kind::Nested { rust: "AttachTarget<'a>".into(), borrows: true },
            _ => {
                if let Some((name, rust)) = PLAIN.iter().find(|(name, _)| *name == kind) {
                    Kind::Plain { name, rust }
                } else if table.choice.iter().any(|c| c.name == kind) {
                    Kind::Choice(camel(kind))
                } else if let Some(&borrows) = borrows.get(kind) {
                    Kind::Nested { rust: rust_type(kind, borrows), borrows }
                } else {
                    return Err(wrong("unknown type"));
                }
            }
        };
        fields.push(Field { name, kind, mandatory, default, doc: doc.trim().into() });
    }
    Ok(fields)
}

impl Kind {
    fn borrows(&self) -> bool {
        match self {
            Self::Plain { rust, .. } => rust.contains("'a"),
            Self::Symbols | Self::Map | Self::List | Self::Wildcard => true,
            Self::Choice(_) => false,
            Self::Nested { borrows, .. } => *borrows,
        }
    }

    fn rust(&self) -> &str {
        match self {
            Self::Plain { rust, .. } => rust,
            Self::Symbols => "Symbols<'a>",
            Self::Map => "Map<'a>",
            Self::List => "List<'a>",
            Self::Wildcard => "Value<'a>",
            Self::Choice(rust) | Self::Nested { rust, .. } => rust,
        }
    }
}

impl Field {
    fn ident(&self) -> String {
        self.name.replace('-', "_")
    }

    /// Whether the struct's field is the bare type, not an `Option` of it.
    fn bare(&self) -> bool {
        self.mandatory || self.default.is_some() || self.kind == Kind::Symbols
    }

    fn default(&self) -> String {
        match (&self.default, &self.kind) {
            (Some(value), Kind::Choice(rust)) => format!("{rust}::{}", camel(value)),
            (Some(value), Kind::Plain { rust: "u32", .. }) if value == "4294967295" => "u32::MAX".into(),
            (Some(value), Kind::Plain { rust: "u16", .. }) if value == "65535" => "u16::MAX".into(),
            (Some(value), _) => value.clone(),
            (None, Kind::Symbols) => "Symbols::EMPTY".into(),
            (None, _) if !self.bare() => "None".into(),
            (None, Kind::Plain { rust: "&'a [u8]", .. }) => "&[]".into(),
            (None, Kind::Plain { rust: "&'a str", .. }) => "\"\"".into(),
            (None, Kind::Plain { rust: "bool", .. }) => "false".into(),
            (None, Kind::Plain { rust: "[u8; 16]", .. }) => "[0; 16]".into(),
            (None, Kind::Plain { .. }) => "0".into(),
            (None, Kind::Choice(rust)) => format!("{rust}::default()"),
            (None, _) => "Default::default()".into(),
        }
    }

    /// The expression that reads the field.
    fn read(&self, composite: &str) -> String {
        let at = format!("at(\"{composite}\", \"{}\")", self.name);
        let value = match &self.kind {
            Kind::Nested { rust, .. } => {
                let read = rust.replace("<'a>", "");
                let some = format!(
                    "match fields.composite().map_err({at})? {{ Some(cursor) => Some({read}::read(cursor, bounds)?), None => None }}"
                );
                return if self.bare() { format!("required({some}).map_err({at})?") } else { some };
            }
            Kind::Symbols if self.mandatory => {
                return format!("fields.symbols().and_then(required_symbols).map_err({at})?");
            }
            Kind::Symbols => return format!("fields.symbols().map_err({at})?"),
            Kind::Plain { name, .. } => format!("fields.{}()", name.replace('-', "_")),
            Kind::Map => "fields.map()".into(),
            Kind::List => "fields.list()".into(),
            Kind::Wildcard => "fields.value()".into(),
            Kind::Choice(rust) => format!("{rust}::read(&mut fields)"),
        };
        if self.mandatory {
            format!("{value}.and_then(required).map_err({at})?")
        } else if self.default.is_some() {
            format!("{value}.map_err({at})?.unwrap_or({})", self.default())
        } else {
            format!("{value}.map_err({at})?")
        }
    }

    /// The statement that writes the field.
    fn write(&self) -> String {
        let ident = self.ident();
        let put = match &self.kind {
            Kind::Plain { name, .. } => format!("encode::put_{}", name.replace('-', "_")),
            Kind::Symbols => {
                let put = format!("encode::put_symbols(w.field(), &self.{ident})");
                return if self.mandatory {
                    format!("{put};")
                } else {
                    format!("if self.{ident}.is_empty() {{ w.null() }} else {{ {put} }}")
                };
            }
            Kind::Map => "|out, map| encode::put_map(out, &map)".into(),
            Kind::List => "|out, list| encode::put_list(out, &list)".into(),
            Kind::Wildcard => "|out, value| encode::put_value(out, &value)".into(),
            Kind::Choice(_) | Kind::Nested { .. } => "|out, value| value.encode(out)".into(),
        };
        if self.mandatory {
            match &self.kind {
                Kind::Plain { .. } => format!("{put}(w.field(), self.{ident});"),
                _ => format!("self.{ident}.encode(w.field());"),
            }
        } else if self.default.is_some() {
            format!("w.unless(self.{ident}, {}, {put});", self.default())
        } else {
            format!("w.option(self.{ident}, {put});")
        }
    }
}

fn write_choice(out: &mut String, origin: &Origin, choice: &Choice) -> Result<(), String> {
    let name = camel(&choice.name);
    let symbolic = choice.base == "symbol";
    let (_, rust) = PLAIN.iter().find(|(n, _)| *n == choice.base).ok_or_else(|| format!("{}: base", choice.name))?;
    let wire = if symbolic { "&'static str" } else { rust };
    let mut values = Vec::new();
    for line in choice.values.lines().filter(|line| !line.trim().is_empty()) {
        let mut words = line.split_whitespace();
        let (Some(name), Some(value)) = (words.next(), words.next()) else {
            return Err(format!("{}: name and value are needed: {line}", choice.name));
        };
        let value = if symbolic { format!("\"{value}\"") } else { value.to_string() };
        values.push((camel(name), value, words.collect::<Vec<_>>().join(" ")));
    }
    let default = camel(&choice.default);
    let _ = writeln!(out, "\n/// {}", choice.doc);
    let _ = writeln!(out, "//= {} {}", origin.cites, choice.section);
    let _ = writeln!(out, "#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]\npub enum {name} {{");
    for (variant, _, doc) in &values {
        let _ = writeln!(out, "/// {}.", upper(doc));
        if *variant == default {
            let _ = writeln!(out, "#[default]");
        }
        let _ = writeln!(out, "{variant},");
    }
    let _ = writeln!(out, "}}\n\nimpl {name} {{");
    let _ = writeln!(out, "/// The value on the wire.\n#[must_use]\npub fn wire(self) -> {wire} {{ match self {{");
    for (variant, value, _) in &values {
        let _ = writeln!(out, "Self::{variant} => {value},");
    }
    let _ = writeln!(out, "}} }}\n");
    let _ = writeln!(out, "#[inline]\npub(super) fn read(fields: &mut Fields<'_>) -> Result<Option<Self>, Fault> {{");
    let _ = writeln!(out, "Ok(match fields.{}()? {{\nNone => None,", choice.base);
    for (variant, value, _) in &values {
        let _ = writeln!(out, "Some({value}) => Some(Self::{variant}),");
    }
    if choice.base != "boolean" {
        let _ = writeln!(out, "Some(_) => return Err(Fault::BadChoice {{ expected: \"{}\" }}),", choice.name);
    }
    let _ = writeln!(out, "}})\n}}\n");
    let _ = writeln!(
        out,
        "#[inline]\npub(super) fn encode(self, out: &mut Vec<u8>) {{ encode::put_{}(out, self.wire()) }}\n}}",
        choice.base
    );
    Ok(())
}

fn write_composite(
    out: &mut String,
    origin: &Origin,
    table: &Table,
    composite: &Composite,
    fields: &[Field],
    borrows: bool,
) {
    let name = camel(&composite.name);
    let life = if borrows { "<'a>" } else { "" };
    let anon = if borrows { "<'_>" } else { "" };
    let wire = &composite.name;
    let (code, begin) = match origin.domain {
        0 => (format!("0x{:02x}", composite.code), "begin"),
        domain => {
            (format!("0x{:04x}_{:04x}_0000_00{:02x}", domain >> 16, domain & 0xffff, composite.code), "begin_wide")
        }
    };
    let prefix = origin.prefix;
    let of = if origin.domain == 0 { " in the standard" } else { "" };
    let any = if borrows { "'a" } else { "'_" };
    let (generic, bytes) = if borrows { ("", "'a") } else { ("<'b>", "'b") };
    let _ = writeln!(out, "\n/// {}", composite.doc);
    let _ = writeln!(out, "//= {} {}", origin.cites, composite.section);
    let derive_default = if fields.iter().all(|f| derivable(table, f)) { "Default, " } else { "" };
    let _ = writeln!(out, "#[derive(Clone, Copy, Debug, {derive_default}PartialEq, Eq)]");
    if fields.is_empty() {
        let _ = writeln!(out, "pub struct {name};\n");
    } else {
        let _ = writeln!(out, "pub struct {name}{life} {{");
        for field in fields {
            let rust = field.kind.rust();
            let rust = if field.bare() { rust.to_string() } else { format!("Option<{rust}>") };
            let _ = writeln!(out, "/// {}.\npub {}: {rust},", upper(&field.doc), field.ident());
        }
        let _ = writeln!(out, "}}\n");
        if derive_default.is_empty() {
            let _ = writeln!(out, "impl Default for {name}{anon} {{ fn default() -> Self {{ Self {{");
            for field in fields {
                let _ = writeln!(out, "{}: {},", field.ident(), field.default());
            }
            let _ = writeln!(out, "}} }} }}\n");
        }
    }
    let _ = writeln!(
        out,
        "impl{life} {name}{life} {{\n\
         /// Its name{of}.\npub const NAME: &'static str = \"{wire}\";\n\
         /// Its numeric descriptor.\npub const CODE: u64 = {code};\n\
         /// Its symbolic descriptor.\npub const SYMBOL: &'static str = \"{prefix}:{wire}:list\";\n"
    );
    let _ = writeln!(
        out,
        "/// Decodes it from the start of `bytes`; returns what follows it too.\n///\n\
         /// # Errors\n/// What is wrong with the bytes, by field.\n\
         pub fn decode{generic}(bytes: &{bytes} [u8], limits: &Limits) -> Result<(Self, &{bytes} [u8]), DecodeError> {{\n\
         let mut cursor = Cursor::new(bytes);\n\
         let value = Self::read(&mut cursor, Bounds::parsed(limits))?;\n\
         Ok((value, cursor.rest()))\n}}\n"
    );
    let _ = writeln!(
        out,
        "pub(crate) fn read(cursor: &mut Cursor<{any}>, bounds: Bounds) -> Result<Self, DecodeError> {{\n\
         described(cursor, Self::CODE, Self::SYMBOL, Self::NAME)?;\n\
         Self::read_fields(cursor, bounds)\n}}\n"
    );
    let mutable = if fields.is_empty() { "" } else { "mut " };
    let _ = writeln!(
        out,
        "/// Reads the list behind the descriptor.\n\
         pub(crate) fn read_fields(cursor: &mut Cursor<{any}>, bounds: Bounds) -> Result<Self, DecodeError> {{\n\
         let {mutable}fields = Fields::open(cursor, bounds, Self::NAME)?;"
    );
    if fields.is_empty() {
        let _ = writeln!(out, "fields.finish(Self::NAME)?;\nOk(Self)\n}}\n");
    } else {
        let _ = writeln!(out, "let value = Self {{");
        for field in fields {
            let _ = writeln!(out, "{}: {},", field.ident(), field.read(wire));
        }
        let _ = writeln!(out, "}};\nfields.finish(Self::NAME)?;\nOk(value)\n}}\n");
    }
    let _ = writeln!(
        out,
        "/// Appends it to `out`, in its shortest form.\npub fn encode(&self, out: &mut Vec<u8>) {{\n\
         let {mutable}w = FieldsWriter::{begin}(out, {code});"
    );
    for field in fields {
        let _ = writeln!(out, "{}", field.write());
    }
    let _ = writeln!(out, "w.finish();\n}}\n}}");
}

/// Whether the derived default of a field is the one it must have.
fn derivable(table: &Table, field: &Field) -> bool {
    let default = field.default();
    let of_choice = |c: &Choice| default == format!("{}::{}", camel(&c.name), camel(&c.default));
    matches!(default.as_str(), "None" | "0" | "false" | "\"\"" | "&[]" | "[0; 16]" | "Symbols::EMPTY")
        || default.ends_with("default()")
        || table.choice.iter().any(of_choice)
}

fn write_union(out: &mut String, name: &str, doc: &str, types: &[&Composite], borrows: &BTreeMap<String, bool>) {
    let _ = writeln!(out, "\n/// {doc}\n#[derive(Clone, Copy, Debug, PartialEq, Eq)]");
    if types.iter().any(|t| t.name == "attach") {
        let _ = writeln!(
            out,
            "#[expect(clippy::large_enum_variant, reason = \"decoding must not allocate; the engine matches it where it is made\")]"
        );
    }
    if types.iter().all(|t| t.group == "sasl") {
        let _ = writeln!(
            out,
            "#[expect(clippy::enum_variant_names, reason = \"the standard's names of types, as everywhere\")]"
        );
    }
    let _ = writeln!(out, "pub enum {name}<'a> {{");
    for composite in types {
        let variant = camel(&composite.name);
        let _ = writeln!(
            out,
            "/// {}\n{variant}({}),",
            composite.doc,
            rust_type(&composite.name, borrows[&composite.name])
        );
    }
    let _ = writeln!(out, "}}\n\nimpl<'a> {name}<'a> {{");
    let _ = writeln!(
        out,
        "/// Its name in the standard.\n#[must_use]\npub fn name(&self) -> &'static str {{ match self {{"
    );
    for composite in types {
        let _ = writeln!(out, "Self::{0}(_) => {0}::NAME,", camel(&composite.name));
    }
    let _ = writeln!(out, "}} }}\n");
    let _ = writeln!(
        out,
        "/// Reads it by its descriptor.\n\
         pub(crate) fn read(cursor: &mut Cursor<'a>, bounds: Bounds) -> Result<Self, DecodeError> {{\n\
         Ok(match performative_code(cursor, Self::code_of)? {{"
    );
    for composite in types {
        let variant = camel(&composite.name);
        let _ = writeln!(out, "Some({variant}::CODE) => Self::{variant}({variant}::read_fields(cursor, bounds)?),",);
    }
    let _ = writeln!(out, "code => return Err(DecodeError::UnknownPerformative {{ code }}),\n}})\n}}\n");
    let _ = writeln!(
        out,
        "/// Appends it to `out`, in its shortest form.\npub fn encode(&self, out: &mut Vec<u8>) {{ match self {{"
    );
    for composite in types {
        let _ = writeln!(out, "Self::{}(value) => value.encode(out),", camel(&composite.name));
    }
    let _ = writeln!(out, "}} }}\n}}");
    for composite in types {
        let variant = camel(&composite.name);
        let rust = rust_type(&composite.name, borrows[&composite.name]);
        let (outer, inner) = if rust.contains("'a") { ("<'a>", "<'a>") } else { ("", "<'_>") };
        let _ = writeln!(
            out,
            "\nimpl{outer} From<{rust}> for {name}{inner} {{ fn from(value: {rust}) -> Self {{ Self::{variant}(value) }} }}"
        );
    }
    // A symbolic descriptor is as good as its number.
    let _ = writeln!(out, "\nimpl {name}<'_> {{");
    let _ = writeln!(
        out,
        "/// The numeric descriptor of a symbolic one.\n#[must_use]\npub fn code_of(symbol: &str) -> Option<u64> {{ Some(match symbol {{"
    );
    for composite in types {
        let variant = camel(&composite.name);
        let _ = writeln!(out, "{variant}::SYMBOL => {variant}::CODE,");
    }
    let _ = writeln!(out, "_ => return None,\n}}) }}\n}}");
}

fn rust_type(name: &str, borrows: bool) -> String {
    format!("{}{}", camel(name), if borrows { "<'a>" } else { "" })
}

/// `snd-settle-mode` → `SndSettleMode`.
fn camel(name: &str) -> String {
    name.split('-').map(upper).collect()
}

fn upper(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |c| c.to_uppercase().chain(chars).collect())
}
