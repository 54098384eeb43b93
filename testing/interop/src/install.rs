//! Gets the clients, unmodified, from their registries through the ordinary package tools, into the ignored folder
//! `.cache/`, and builds our programs on them. A second run finds all of it there.

use std::{
    collections::hash_map::DefaultHasher,
    fs,
    hash::{Hash, Hasher},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{client::Recipe, table::Kind};

/// Why a column cannot run.
pub(crate) enum Missing {
    /// The machine lacks this tool.
    Tool(&'static str),
    /// The tool failed.
    Broken(String),
}

/// Prepares a client; quick where nothing has changed since the last time.
pub(crate) fn prepare(kind: Kind, cache: &Path, sources: &Path) -> Result<Recipe, Missing> {
    if let Some(tool) = kind.tools().iter().find(|tool| !on_path(tool)) {
        return Err(Missing::Tool(tool));
    }
    let from = sources.join(kind.folder());
    let to = cache.join(kind.folder());
    fs::create_dir_all(&to).map_err(|error| Missing::Broken(error.to_string()))?;
    match kind {
        Kind::Proton => python(&from, &to),
        Kind::Rhea => node(&from, &to),
        Kind::QpidJms => java(&from, &to),
        Kind::GoAmqp => go(&from, &to),
        Kind::Fe2o3 => rust(&from, &to),
    }
    .map_err(Missing::Broken)
}

fn on_path(tool: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(tool).is_file()))
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Runs a command and keeps its output for the error only.
fn run(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let lines: Vec<&str> = said.lines().collect();
    Err(format!("{command:?}: {}\n{}", output.status, lines[lines.len().saturating_sub(15)..].join("\n")))
}

/// Does `work` unless it has succeeded for just these files before.
fn once(to: &Path, files: &[PathBuf], work: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    let mut hash = DefaultHasher::new();
    for file in files {
        fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?.hash(&mut hash);
    }
    let sum = hash.finish().to_string();
    let mark = to.join("prepared");
    if fs::read_to_string(&mark).is_ok_and(|before| before == sum) {
        return Ok(());
    }
    let _ = fs::remove_file(&mark);
    work()?;
    fs::write(&mark, sum).map_err(|error| error.to_string())
}

fn python(from: &Path, to: &Path) -> Result<Recipe, String> {
    let (wanted, venv) = (from.join("requirements.txt"), to.join("venv"));
    once(to, std::slice::from_ref(&wanted), || {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
        run(Command::new(venv.join("bin/pip"))
            .args(["install", "--quiet", "--disable-pip-version-check", "-r"])
            .arg(&wanted))
    })?;
    Ok(Recipe {
        program: text(&venv.join("bin/python")),
        arguments: vec![text(&from.join("client.py"))],
        environment: vec![("PYTHONDONTWRITEBYTECODE".into(), "1".into())],
    })
}

fn node(from: &Path, to: &Path) -> Result<Recipe, String> {
    let lists = [from.join("package.json"), from.join("package-lock.json")];
    once(to, &lists, || {
        for list in &lists {
            fs::copy(list, to.join(list.file_name().unwrap_or_default())).map_err(|error| error.to_string())?;
        }
        run(Command::new("npm").args(["ci", "--silent", "--no-fund", "--no-audit"]).current_dir(to))
    })?;
    Ok(Recipe {
        program: "node".into(),
        arguments: vec![text(&from.join("client.js"))],
        environment: vec![("NODE_PATH".into(), text(&to.join("node_modules")))],
    })
}

fn java(from: &Path, to: &Path) -> Result<Recipe, String> {
    const CLASS_PATH: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath";
    let folder = fs::read_dir(from.join("src")).map_err(|error| error.to_string())?;
    let mut sources: Vec<PathBuf> = folder.filter_map(|entry| Some(entry.ok()?.path())).collect();
    sources.sort(); // in the order of names, for the sum over them
    let (pom, list, classes) = (from.join("pom.xml"), to.join("classpath"), to.join("classes"));
    let files: Vec<PathBuf> = sources.iter().cloned().chain([pom.clone()]).collect();
    once(to, &files, || {
        run(Command::new("mvn")
            .args(["-B", "-q", "-f"])
            .arg(&pom)
            .arg(format!("-Dmaven.repo.local={}", text(&to.join("repository"))))
            .arg(CLASS_PATH)
            .arg(format!("-Dmdep.outputFile={}", text(&list))))?;
        let jars = fs::read_to_string(&list).map_err(|error| error.to_string())?;
        let _ = fs::remove_dir_all(&classes);
        run(Command::new("javac").args(["-encoding", "UTF-8", "-cp", &jars, "-d"]).arg(&classes).args(&sources))
    })?;
    let jars = fs::read_to_string(&list).map_err(|error| error.to_string())?;
    // 100 MiB bodies are held whole, several times over, by this client.
    let arguments = vec![
        "-Xmx1500m".into(),
        "-XX:+UseSerialGC".into(),
        "-cp".into(),
        format!("{}:{jars}", text(&classes)),
        "Client".into(),
    ];
    Ok(Recipe { program: "java".into(), arguments, environment: Vec::new() })
}

fn go(from: &Path, to: &Path) -> Result<Recipe, String> {
    let program = to.join("client");
    run(Command::new("go")
        .args(["build", "-mod=readonly", "-modcacherw", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(from)
        .env("GOMODCACHE", to.join("modules"))
        .env("GOCACHE", to.join("build")))?;
    Ok(Recipe { program: text(&program), arguments: Vec::new(), environment: Vec::new() })
}

fn rust(from: &Path, to: &Path) -> Result<Recipe, String> {
    run(Command::new("cargo")
        .args(["build", "--release", "--locked", "--quiet"])
        .current_dir(from)
        .env("CARGO_TARGET_DIR", to))?;
    Ok(Recipe { program: text(&to.join("release/interop-fe2o3")), arguments: Vec::new(), environment: Vec::new() })
}
