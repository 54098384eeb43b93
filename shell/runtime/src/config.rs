//! The typed configuration of `serve`, made from effective values, with all rules over several of them checked.

use crate::load::{Effective, Mistake, Origin};
use packhorse_broker::{Config, IdBounds, TransactionConfig};
use packhorse_journal::Checkpoints;
use std::net::SocketAddr;
use std::path::PathBuf;

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Human,
    /// One JSON object a line.
    Json,
}

/// All that `serve` needs.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// The broker's own settings.
    pub broker: Config,
    /// The data directory.
    pub data: PathBuf,
    /// Size of a journal segment, bytes.
    pub segment_bytes: u64,
    /// When checkpoints are taken.
    pub checkpoints: Checkpoints,
    /// AMQP listeners.
    pub amqp: Vec<SocketAddr>,
    /// Nobody chose these listeners: one that the machine has no address family for is left out.
    pub amqp_by_default: bool,
    /// AMQP connections at a time.
    pub max_connections: usize,
    /// The HTTP listener.
    pub http: SocketAddr,
    /// HTTP connections at a time.
    pub http_max_connections: usize,
    /// Written when ready.
    pub ready_file: Option<PathBuf>,
    /// How log lines look.
    pub log_format: LogFormat,
    /// The least important level shown.
    pub log_level: tracing::Level,
    /// Every value with its origin.
    pub effective: Effective,
}

impl ServeConfig {
    /// Checks all rules. The sentence of a mistake names the setting, the rule and the value.
    pub fn new(effective: Effective) -> Result<ServeConfig, Mistake> {
        let broker = broker(&effective);
        broker.check().map_err(|e| {
            let (_, origin) = effective.get(e.setting);
            Mistake(format!("{origin}: {e}"))
        })?;
        let at_least = |name: &'static str, low: u64| {
            let (value, origin) = effective.get(name);
            match effective.number(name) >= low {
                true => Ok(effective.number(name)),
                false => Err(Mistake(format!("{origin}: {name} = {value}: must be at least {low}"))),
            }
        };
        let endpoints = |name: &'static str, list: &[String]| -> Result<Vec<SocketAddr>, Mistake> {
            list.iter().map(|text| loopback(text, name, effective.get(name).1)).collect()
        };
        let amqp = endpoints("amqp.listen", effective.list("amqp.listen"))?;
        let http = endpoints("http.listen", &[effective.text("http.listen").to_string()])?[0];
        let data = effective.text("data.dir");
        if data.is_empty() {
            return Err(Mistake(format!("{}: data.dir is empty: name a directory", effective.get("data.dir").1)));
        }
        Ok(ServeConfig {
            data: data.into(),
            segment_bytes: at_least("data.segment_bytes", 1 << 20)?,
            checkpoints: Checkpoints {
                every_bytes: at_least("data.checkpoint_bytes", 64 << 10)?,
                every_us: at_least("data.checkpoint_interval_ms", 10)? * 1000,
                ..Checkpoints::default()
            },
            amqp,
            amqp_by_default: *effective.get("amqp.listen").1 == Origin::Default,
            max_connections: at_least("amqp.max_connections", 1)? as usize,
            http,
            http_max_connections: at_least("http.max_connections", 1)? as usize,
            ready_file: Some(effective.text("ready.file")).filter(|t| !t.is_empty()).map(PathBuf::from),
            log_format: if effective.text("log.format") == "json" { LogFormat::Json } else { LogFormat::Human },
            log_level: effective.text("log.level").parse().expect("the table has tracing's words"),
            broker,
            effective,
        })
    }
}

fn broker(effective: &Effective) -> Config {
    let narrow = |name: &str| effective.number(name) as u32;
    Config {
        broker_name: effective.text("broker.name").into(),
        shards: effective.number("broker.shards") as u16,
        max_message_bytes: effective.number("limits.max_message_bytes"),
        max_frame_bytes: narrow("limits.max_frame_bytes"),
        max_frame_before_open_bytes: narrow("limits.max_frame_before_open_bytes"),
        max_links: narrow("limits.max_links"),
        max_sessions: effective.number("limits.max_sessions") as u16,
        link_credit_max: narrow("limits.link_credit_max"),
        link_credit_bytes: effective.number("limits.link_credit_bytes"),
        memory_bytes: effective.number("limits.memory_bytes"),
        max_output_bytes: effective.number("limits.max_output_bytes") as usize,
        idle_timeout_ms: narrow("limits.idle_timeout_ms"),
        first_byte_timeout_ms: narrow("limits.first_byte_timeout_ms"),
        sasl_timeout_ms: narrow("limits.sasl_timeout_ms"),
        open_timeout_ms: narrow("limits.open_timeout_ms"),
        delivery_limit: narrow("queues.delivery_limit"),
        dead_letter_queue: effective.text("queues.dead_letter").into(),
        auto_create: effective.flag("queues.auto_create"),
        duplicate_ids: IdBounds {
            max: narrow("queues.duplicate_ids"),
            keep_ms: effective.number("queues.duplicate_ids_keep_ms"),
        },
        all_duplicate_ids: Config::default().all_duplicate_ids,
        transactions: TransactionConfig {
            max_staged_bytes: effective.number("transactions.max_staged_bytes"),
            max_memory_bytes: effective.number("transactions.max_memory_bytes"),
            max_open_per_connection: narrow("transactions.max_open_per_connection"),
            max_branches: narrow("transactions.max_branches"),
            local_timeout_ms: effective.number("transactions.local_timeout_ms"),
            branch_timeout_ms: effective.number("transactions.branch_timeout_ms"),
            max_branch_timeout_ms: effective.number("transactions.max_branch_timeout_ms"),
            remember_ms: effective.number("transactions.remember_ms"),
            max_remembered: narrow("transactions.max_remembered"),
            in_doubt_alarm_ms: effective.number("transactions.in_doubt_alarm_ms"),
        },
    }
}

/// Without users everybody who reaches a listener may do anything, so only this machine may reach one.
fn loopback(text: &str, name: &str, origin: &Origin) -> Result<SocketAddr, Mistake> {
    let address: SocketAddr = text.parse().expect("checked by the setting's kind");
    if address.ip().to_canonical().is_loopback() {
        return Ok(address);
    }
    Err(Mistake(format!(
        "{origin}: {name} = {text}: listening beyond loopback needs a configured user, and this version has no users yet; \
         listen on 127.0.0.1 or [::1]"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Flags;

    fn with(assignment: &str) -> Result<ServeConfig, Mistake> {
        let mut flags = Flags::default();
        flags.set_text(assignment)?;
        ServeConfig::new(Effective::gather(&flags, [])?)
    }

    #[test]
    fn defaults_are_those_of_the_specification() {
        let config = ServeConfig::new(Effective::defaults()).unwrap();
        assert_eq!(config.data, PathBuf::from("./packhorse-data"));
        assert_eq!(config.amqp, ["127.0.0.1:5672".parse().unwrap(), "[::1]:5672".parse::<SocketAddr>().unwrap()]);
        assert!(config.amqp_by_default);
        assert_eq!(config.http, "127.0.0.1:8672".parse().unwrap());
        assert_eq!(Config { shards: 1, ..config.broker }, Config::default());
        assert_eq!(config.log_level, tracing::Level::INFO);
        assert_eq!(config.checkpoints, Checkpoints::default());
        assert_eq!((config.checkpoints.every_bytes, config.checkpoints.every_us), (256 << 20, 60_000_000));
    }

    #[test]
    fn listening_beyond_loopback_is_refused_with_the_reason() {
        for assignment in ["amqp.listen=0.0.0.0:5672", "http.listen=[::]:0", "amqp.listen=127.0.0.1:1,10.1.2.3:2"] {
            let sentence = with(assignment).unwrap_err().0;
            assert!(sentence.contains("needs a configured user"), "{sentence}");
        }
        assert!(with("amqp.listen=127.9.9.9:0").is_ok());
        assert!(with("amqp.listen=[::ffff:127.0.0.1]:0").is_ok());
    }

    #[test]
    fn bounds_name_origin_setting_and_rule() {
        assert_eq!(
            with("broker.shards=65").unwrap_err().0,
            "flag --set broker.shards=65: broker.shards = 65: must be 1 to 64"
        );
        assert_eq!(
            with("http.max_connections=0").unwrap_err().0,
            "flag --set http.max_connections=0: http.max_connections = 0: must be at least 1"
        );
        assert!(with("data.checkpoint_bytes=65535").unwrap_err().0.ends_with("must be at least 65536"));
        assert_eq!(with("data.checkpoint_interval_ms=10").unwrap().checkpoints.every_us, 10_000);
        assert!(with("queues.dead_letter=").unwrap_err().0.contains("queues.dead_letter"));
        assert!(with("data.dir=").is_err());
        assert_eq!(
            with("transactions.remember_ms=999").unwrap_err().0,
            "flag --set transactions.remember_ms=999: transactions.remember_ms = 999: must be 1000 to 604800000"
        );
        let config = with("transactions.in_doubt_alarm_ms=5").unwrap().broker.transactions;
        assert_eq!(config, TransactionConfig { in_doubt_alarm_ms: 5, ..TransactionConfig::default() });
    }

    #[test]
    fn every_setting_that_the_broker_checks_is_in_the_table() {
        // `Config::check` names settings; each is looked up for its origin.
        let bad = Config { shards: 0, ..Config::default() };
        assert!(crate::settings::find(bad.check().unwrap_err().setting).is_some());
    }
}
