//! Where values come from: flag, then environment, then file, then default; and what a person is told when one is wrong.
//!
//! Owns precedence and origins. Must not know what a setting does.

use crate::settings::{self, Kind, NOT_YET, SETTINGS, Setting, Value};
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody said anything.
    Default,
    /// A line of the configuration file.
    File {
        /// The file as named by the user.
        path: PathBuf,
        /// 1-based.
        line: usize,
    },
    /// An environment variable.
    Environment(String),
    /// A flag of the command line, as it is written there.
    Flag(String),
}

impl Origin {
    /// One word for tables and the API.
    pub fn word(&self) -> &'static str {
        match self {
            Origin::Default => "default",
            Origin::File { .. } => "file",
            Origin::Environment(_) => "environment",
            Origin::Flag(_) => "flag",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Environment(name) => write!(f, "environment {name}"),
            Origin::Flag(flag) => write!(f, "flag {flag}"),
        }
    }
}

/// Why a configuration is refused: one sentence with the place, the thing, the rule and the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake(pub String);

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Mistake {}

/// What the command line says.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// The file to read, if any.
    pub config: Option<PathBuf>,
    /// Setting, value, and the flag as written.
    pub values: Vec<(&'static str, Value, String)>,
}

impl Flags {
    /// Adds one value.
    pub fn set(&mut self, name: &'static str, value: Value, flag: &str) {
        self.values.push((name, value, flag.to_string()));
    }

    /// Adds `SECTION.KEY=VALUE`.
    pub fn set_text(&mut self, assignment: &str) -> Result<(), Mistake> {
        let flag = format!("--set {assignment}");
        let Some((name, text)) = assignment.split_once('=') else {
            return Err(Mistake(format!("{flag}: write --set SECTION.KEY=VALUE")));
        };
        let setting = known(name.trim(), &Origin::Flag(flag.clone()))?;
        let value = read(setting, text, &Origin::Flag(flag.clone()))?;
        self.values.push((setting.name, value, flag));
        Ok(())
    }
}

/// The value of every setting, with its origin.
#[derive(Clone, Debug)]
pub struct Effective {
    values: BTreeMap<&'static str, (Value, Origin)>,
}

impl Effective {
    /// Gathers values: `flags` over `environment` over the file that `flags` names over defaults.
    pub fn gather(
        flags: &Flags,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Effective, Mistake> {
        let mut all = Effective::defaults();
        if let Some(path) = &flags.config {
            let text = std::fs::read_to_string(path)
                .map_err(|e| Mistake(format!("cannot read the configuration file {}: {e}", path.display())))?;
            all.file(path, &text)?;
        }
        all.environment(environment)?;
        for (name, value, flag) in &flags.values {
            let setting = settings::find(name).expect("flags name settings of the table");
            all.put(setting, value.clone(), Origin::Flag(flag.clone()))?;
        }
        Ok(all)
    }

    /// The defaults alone.
    pub fn defaults() -> Effective {
        Effective { values: SETTINGS.iter().map(|s| (s.name, ((s.default)(), Origin::Default))).collect() }
    }

    /// Lays a file's text over what is there.
    pub fn file(&mut self, path: &Path, text: &str) -> Result<(), Mistake> {
        let place = |start: usize| Origin::File { path: path.into(), line: line_of(text, start) };
        let table = DeTable::parse(text)
            .map_err(|e| Mistake(format!("{}: {}", place(e.span().map_or(0, |s| s.start)), e.message())))?;
        for (section, content) in table.get_ref() {
            let origin = place(section.span().start);
            let DeValue::Table(keys) = content.get_ref() else {
                return Err(Mistake(format!("{origin}: {} is outside of a [section]", section.get_ref())));
            };
            if !SETTINGS.iter().any(|s| s.name.split('.').next() == Some(section.get_ref().as_ref())) && keys.is_empty()
            {
                return Err(Mistake(format!("{origin}: there is no section [{}]", section.get_ref())));
            }
            for (key, value) in keys {
                let origin = place(key.span().start);
                let setting = known(&format!("{}.{}", section.get_ref(), key.get_ref()), &origin)?;
                let value = from_toml(value.get_ref())
                    .ok_or_else(|| wrong(setting, &short(&text[value.span().start..value.span().end]), &origin))?;
                self.put(setting, value, origin)?;
            }
        }
        Ok(())
    }

    /// Lays `PACKHORSE_SECTION__KEY` variables over what is there.
    fn environment(&mut self, variables: impl IntoIterator<Item = (String, String)>) -> Result<(), Mistake> {
        for (variable, text) in variables {
            let Some(rest) = variable.strip_prefix("PACKHORSE_") else { continue };
            let Some((section, key)) = rest.split_once("__") else { continue };
            let origin = Origin::Environment(variable.clone());
            let setting = known(&format!("{}.{}", section.to_lowercase(), key.to_lowercase()), &origin)?;
            let value = read(setting, &text, &origin)?;
            self.put(setting, value, origin)?;
        }
        Ok(())
    }

    fn put(&mut self, setting: &Setting, value: Value, origin: Origin) -> Result<(), Mistake> {
        if !setting.kind.admits(&value) {
            return Err(wrong(setting, &value.to_string(), &origin));
        }
        self.values.insert(setting.name, (value, origin));
        Ok(())
    }

    /// A value and its origin. The name is one of the table.
    pub fn get(&self, name: &str) -> (&Value, &Origin) {
        let (value, origin) = &self.values[name];
        (value, origin)
    }

    /// All settings in the table's order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Setting, &Value, &Origin)> {
        SETTINGS.iter().map(|s| {
            let (value, origin) = self.get(s.name);
            (s, value, origin)
        })
    }

    /// The document of `GET /api/v1/config` and `config show --json`.
    pub fn to_json(&self) -> serde_json::Value {
        let settings: Vec<_> = self
            .iter()
            .map(|(setting, value, origin)| {
                let value = match value {
                    Value::Number(n) => json!(n),
                    Value::Flag(b) => json!(b),
                    Value::Text(t) => json!(t),
                    Value::List(items) => json!(items),
                };
                let mut entry =
                    json!({ "name": setting.name, "value": value, "origin": origin.word(), "help": setting.help });
                if *origin != Origin::Default {
                    entry["from"] = json!(origin.to_string());
                }
                entry
            })
            .collect();
        json!({ "settings": settings })
    }

    pub(crate) fn number(&self, name: &str) -> u64 {
        match self.get(name).0 {
            Value::Number(n) => *n,
            other => unreachable!("{name} is a number by its kind, not {other}"),
        }
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        matches!(self.get(name).0, Value::Flag(true))
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        match self.get(name).0 {
            Value::Text(t) => t,
            other => unreachable!("{name} is a text by its kind, not {other}"),
        }
    }

    pub(crate) fn list(&self, name: &str) -> &[String] {
        match self.get(name).0 {
            Value::List(items) => items,
            other => unreachable!("{name} is a list by its kind, not {other}"),
        }
    }
}

fn known(name: &str, origin: &Origin) -> Result<&'static Setting, Mistake> {
    if let Some(setting) = settings::find(name) {
        return Ok(setting);
    }
    if NOT_YET.contains(&name) {
        return Err(Mistake(format!("{origin}: {name} is not implemented yet; remove it")));
    }
    let hint = match settings::near(name) {
        Some(near) => format!("did you mean {near}?"),
        None => "`packhorse config show` lists all settings".into(),
    };
    Err(Mistake(format!("{origin}: unknown setting {name}; {hint}")))
}

fn read(setting: &Setting, text: &str, origin: &Origin) -> Result<Value, Mistake> {
    setting.kind.read(text).ok_or_else(|| wrong(setting, &short(text), origin))
}

fn wrong(setting: &Setting, value: &str, origin: &Origin) -> Mistake {
    let hint = match setting.kind {
        Kind::Endpoint | Kind::Endpoints if value.contains("localhost") => " (a number, not a host name)",
        _ => "",
    };
    Mistake(format!("{origin}: {} = {value}: must be {}{hint}", setting.name, setting.kind.expected()))
}

fn from_toml(value: &DeValue<'_>) -> Option<Value> {
    Some(match value {
        DeValue::Integer(n) => Value::Number(u64::from_str_radix(&n.as_str().replace('_', ""), n.radix()).ok()?),
        DeValue::Boolean(b) => Value::Flag(*b),
        DeValue::String(t) => Value::Text(t.to_string()),
        DeValue::Array(items) => {
            let mut texts = Vec::new();
            for item in items.iter() {
                let DeValue::String(t) = item.get_ref() else { return None };
                texts.push(t.to_string());
            }
            Value::List(texts)
        }
        DeValue::Float(_) | DeValue::Datetime(_) | DeValue::Table(_) => return None,
    })
}

fn short(text: &str) -> String {
    let mut out: String = text.chars().take(60).collect();
    if out.len() < text.len() {
        out.push('…');
    }
    out
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at.min(text.len())].iter().filter(|b| **b == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
    }

    fn refused(text: &str) -> String {
        Effective::defaults().file(Path::new("p.toml"), text).unwrap_err().0
    }

    #[test]
    fn flag_beats_environment_beats_file_beats_default() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.toml");
        std::fs::write(&path, "[limits]\nmax_links = 1\nmax_sessions = 2\n\nmax_frame_bytes = 0x1_000\n").unwrap();
        let mut flags = Flags { config: Some(path.clone()), values: Vec::new() };
        flags.set_text("limits.max_links=3").unwrap();
        let variables = env(&[
            ("PACKHORSE_LIMITS__MAX_LINKS", "4"),
            ("PACKHORSE_LIMITS__MAX_SESSIONS", "5"),
            ("PACKHORSE_URL", "http://x"),
            ("OTHER__KEY", "x"),
        ]);
        let all = Effective::gather(&flags, variables).unwrap();
        assert_eq!(all.get("limits.max_links"), (&Value::Number(3), &Origin::Flag("--set limits.max_links=3".into())));
        let origin = Origin::Environment("PACKHORSE_LIMITS__MAX_SESSIONS".into());
        assert_eq!(all.get("limits.max_sessions"), (&Value::Number(5), &origin));
        assert_eq!(all.get("limits.max_frame_bytes"), (&Value::Number(4096), &Origin::File { path, line: 5 }));
        assert_eq!(all.get("queues.auto_create"), (&Value::Flag(true), &Origin::Default));
    }

    #[test]
    fn an_unknown_key_is_refused_with_line_and_near_match() {
        assert_eq!(
            refused("[limits]\n\nmax_link = 1\n"),
            "p.toml:3: unknown setting limits.max_link; did you mean limits.max_links?"
        );
        assert_eq!(
            refused("[journal]\nfsync = false\n"),
            "p.toml:2: unknown setting journal.fsync; `packhorse config show` lists all settings"
        );
        assert_eq!(
            refused("[auth]\nanonymous = \"loopback\"\n"),
            "p.toml:2: auth.anonymous is not implemented yet; remove it"
        );
        assert_eq!(refused("shards = 2"), "p.toml:1: shards is outside of a [section]");
        assert_eq!(refused("[nothing]\n"), "p.toml:1: there is no section [nothing]");
        let bad = env(&[("PACKHORSE_BROKER__SHARD", "1")]);
        assert_eq!(
            Effective::gather(&Flags::default(), bad).unwrap_err().0,
            "environment PACKHORSE_BROKER__SHARD: unknown setting broker.shard; did you mean broker.shards?"
        );
        assert!(Flags::default().set_text("broker.shards").unwrap_err().0.contains("--set SECTION.KEY=VALUE"));
    }

    #[test]
    fn a_wrong_value_is_refused_with_place_rule_and_value() {
        assert_eq!(
            refused("[broker]\nshards = \"two\"\n"),
            "p.toml:2: broker.shards = \"two\": must be a whole number from 0 to 65535"
        );
        assert_eq!(
            refused("[broker]\nshards = -1\n"),
            "p.toml:2: broker.shards = -1: must be a whole number from 0 to 65535"
        );
        assert!(refused("[http]\nlisten = \"localhost:1\"\n").contains("(a number, not a host name)"));
        assert!(refused("[amqp]\nlisten = [1]\n").starts_with("p.toml:2: amqp.listen = [1]: must be a list of"));
        assert!(refused("[broker]\nshards = \n").starts_with("p.toml:2: "), "syntax errors have a line too");
    }

    #[test]
    fn the_document_has_every_setting_with_its_origin() {
        let mut flags = Flags::default();
        flags.set("data.dir", Value::Text("/d".into()), "--data /d");
        let document = Effective::gather(&flags, []).unwrap().to_json();
        let settings = document["settings"].as_array().unwrap();
        assert_eq!(settings.len(), SETTINGS.len());
        let of = |name: &str| settings.iter().find(|s| s["name"] == name).unwrap();
        assert_eq!(of("data.dir")["value"], "/d");
        assert_eq!(of("data.dir")["origin"], "flag");
        assert_eq!(of("data.dir")["from"], "flag --data /d");
        assert_eq!(of("queues.auto_create")["value"], true);
        assert_eq!(of("queues.auto_create")["origin"], "default");
    }
}
