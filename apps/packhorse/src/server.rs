//! `serve` and `config`: the command line's flags become settings.

use crate::End;
use crate::cli::Serve;
use crate::table::Table;
use packhorse_runtime::{Effective, Flags, Mistake, ServeConfig, Value};
use std::path::Path;

/// The exit code of a wrong configuration.
const CONFIGURATION: u8 = 64;

pub(crate) fn serve(args: &Serve) -> End {
    #[cfg(feature = "planted")]
    if let Err(why) = crate::planted::choose() {
        return wrong(&Mistake(why));
    }
    match effective(args).and_then(ServeConfig::new) {
        Ok(config) => End::Code(packhorse_runtime::serve(config).code()),
        Err(mistake) => wrong(&mistake),
    }
}

pub(crate) fn config_show(args: &Serve, json: bool) -> End {
    let effective = match effective(args) {
        Ok(effective) => effective,
        Err(mistake) => return wrong(&mistake),
    };
    if json {
        println!("{}", effective.to_json());
    } else {
        let mut table = Table::new(&["SETTING", "VALUE", "ORIGIN"]);
        for (setting, value, origin) in effective.iter() {
            table.row([setting.name.to_string(), value.to_string(), origin.to_string()]);
        }
        table.print();
    }
    // Shown first, so that a person sees what is wrong in its place.
    match ServeConfig::new(effective) {
        Ok(_) => End::Done,
        Err(mistake) => wrong(&mistake),
    }
}

pub(crate) fn config_check(file: &Path) -> End {
    let flags = Flags { config: Some(file.into()), values: Vec::new() };
    match Effective::gather(&flags, []).and_then(ServeConfig::new) {
        Ok(_) => {
            println!("{}: ok", file.display());
            End::Done
        }
        Err(mistake) => wrong(&mistake),
    }
}

fn wrong(mistake: &Mistake) -> End {
    eprintln!("packhorse: {mistake}");
    End::Code(CONFIGURATION)
}

fn effective(args: &Serve) -> Result<Effective, Mistake> {
    let mut flags = Flags { config: args.config.clone(), values: Vec::new() };
    let mut text = |name, flag: &str, value: &str| {
        flags.set(name, Value::Text(value.to_string()), &format!("{flag} {value}"));
    };
    if let Some(dir) = &args.data {
        text("data.dir", "--data", &dir.to_string_lossy());
    }
    if let Some(http) = &args.http {
        text("http.listen", "--http", http);
    }
    if let Some(file) = &args.ready_file {
        text("ready.file", "--ready-file", &file.to_string_lossy());
    }
    if let Some(format) = &args.log_format {
        text("log.format", "--log-format", format);
    }
    if let Some(level) = &args.log_level {
        text("log.level", "--log-level", level);
    }
    if !args.listen.is_empty() {
        let written = args.listen.iter().map(|a| format!("--listen {a}")).collect::<Vec<_>>().join(" ");
        flags.set("amqp.listen", Value::List(args.listen.clone()), &written);
    }
    if let Some(shards) = args.shards {
        flags.set("broker.shards", Value::Number(shards), &format!("--shards {shards}"));
    }
    for assignment in &args.set {
        flags.set_text(assignment)?;
    }
    Effective::gather(
        &flags,
        std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))),
    )
}
