//! `cargo xtask page`: builds the page's bundle from `collector/ui`.
//!
//! The bundle is committed, so that building Emberline needs neither Node.js nor npm. The same
//! sources give the same bytes on every machine: the lock file pins all packages, and neither
//! paths nor times get into the output.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io};

use anyhow::{Context, Result, bail, ensure};

use crate::{announce, root};

/// Where the bundle is committed.
pub const DIRECTORY: &str = "collector/page";

/// The page's sources.
const SOURCES: &str = "collector/ui";

/// The examples that the tests of the page share with those of crates.
const SHARED_EXAMPLES: [&str; 5] = [
    "api/times.json",
    "flamegraph/colors.json",
    "flamegraph/numbers.json",
    "flamegraph/symbols.json",
    "flamegraph/views.json",
];

/// Files and folders that npm and vite write next to the copied sources.
const NOT_COPIED: [&str; 4] = ["node_modules", "installed.json", "dist", "dist-report"];

/// Options of the bundle.
#[derive(clap::Args)]
pub struct Options {
    /// Fail if the committed bundle differs from its sources, and write nothing.
    #[arg(long)]
    check: bool,
    /// Format the sources and fix their lints first.
    #[arg(long, conflicts_with = "check")]
    fix: bool,
}

/// Contents by path relative to [`DIRECTORY`].
type Files = BTreeMap<String, Vec<u8>>;

/// Writes the bundle, or checks the committed one.
///
/// # Errors
/// If Node.js or npm is missing, the build fails, or the committed bundle is stale.
pub fn run(options: &Options) -> Result<()> {
    if options.check {
        return check();
    }
    if options.fix {
        fix()?;
    }
    let built = build()?;
    let directory = root().join(DIRECTORY);
    if directory.exists() {
        fs::remove_dir_all(&directory)?;
    }
    for (path, content) in &built {
        let path = directory.join(path);
        fs::create_dir_all(path.parent().expect("the path of a file has a parent"))?;
        fs::write(&path, content).with_context(|| path.display().to_string())?;
    }
    println!("wrote {} files to {DIRECTORY}", built.len());
    Ok(())
}

/// Rebuilds the bundle below `target/` and compares it with the committed one.
///
/// # Errors
/// If the bundle cannot be built or any file differs.
pub fn check() -> Result<()> {
    let mut committed = Files::new();
    read_all(&root().join(DIRECTORY), "", &mut committed)?;
    let stale = differences(&committed, &build()?);
    ensure!(
        stale.is_empty(),
        "the committed page differs from its sources: run `cargo xtask page`\n  {}",
        stale.join("\n  ")
    );
    Ok(())
}

/// The differing files, each with what is wrong with it.
fn differences(committed: &Files, built: &Files) -> Vec<String> {
    let mut differences = Vec::new();
    for (path, content) in built {
        match committed.get(path) {
            None => differences.push(format!("{DIRECTORY}/{path} is missing")),
            Some(old) if old != content => differences.push(format!("{DIRECTORY}/{path} is stale")),
            Some(_) => {}
        }
    }
    let surplus = committed.keys().filter(|path| !built.contains_key(*path));
    differences.extend(surplus.map(|path| format!("{DIRECTORY}/{path} is not built any more")));
    differences
}

/// Formats the sources in place and applies the linter's safe fixes.
fn fix() -> Result<()> {
    let biome = prepare()?.join("node_modules/@biomejs/biome/bin/biome");
    let mut command = Command::new("node");
    command
        .current_dir(root().join(SOURCES))
        .arg(biome)
        .args(["check", "--write"]);
    run_quietly(&mut command)
}

/// Builds all files of the bundle.
fn build() -> Result<Files> {
    let ui = prepare()?;
    let mut vite = Command::new("node");
    vite.current_dir(&ui).env("NODE_ENV", "production");
    run_quietly(vite.args([
        "node_modules/vite/bin/vite.js",
        "build",
        "--logLevel",
        "warn",
    ]))?;
    run_quietly(vite.args(["--config", "report.config.ts"]))?;
    let mut files = Files::new();
    read_all(&ui.join("dist"), "", &mut files)?;
    files.insert("licenses.txt".into(), licenses(&ui)?.into_bytes());
    // Not served: the command line writes it.
    read_all(&ui.join("dist-report"), "", &mut files)?;
    Ok(files)
}

/// Copies the page's sources and what their tests import below `target/`, where npm may write, and
/// installs their locked packages there.
///
/// # Errors
/// If npm is missing or fails.
pub fn prepare() -> Result<PathBuf> {
    let copy = root().join("target/page-check");
    let ui = copy.join(SOURCES);
    fs::create_dir_all(&ui)?;
    for examples in SHARED_EXAMPLES {
        let target = copy.join(examples);
        fs::create_dir_all(target.parent().expect("the path of a file has a parent"))?;
        fs::copy(root().join(examples), target)?;
    }
    remove_deleted(&root().join(SOURCES), &ui)?;
    copy_all(&root().join(SOURCES), &ui)?;
    npm_ci(&ui)?;
    Ok(ui)
}

/// Installs the locked packages of `folder` without running their scripts, unless they are
/// installed already.
///
/// # Errors
/// If npm is missing or fails.
pub fn npm_ci(folder: &Path) -> Result<()> {
    let lock = fs::read(folder.join("package-lock.json"))?;
    check_lock(&lock).with_context(|| format!("package-lock.json in {}", folder.display()))?;
    let stamp = folder.join("installed.json");
    if fs::read(&stamp).is_ok_and(|installed| installed == lock) {
        return Ok(());
    }
    announce(&format!("npm ci, in {}", folder.display()));
    let options = [
        "ci",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--prefer-offline",
    ];
    run_quietly(Command::new("npm").current_dir(folder).args(options))?;
    Ok(fs::write(stamp, lock)?)
}

/// Checks that each package of a lock file is bound to its content.
fn check_lock(lock: &[u8]) -> Result<()> {
    let lock: serde_json::Value = serde_json::from_slice(lock)?;
    let packages = lock["packages"].as_object().into_iter().flatten();
    // The first is the folder's own.
    let unbound: Vec<&str> = packages
        .filter(|(path, package)| !path.is_empty() && package["integrity"].as_str().is_none())
        .map(|(path, _)| path.as_str())
        .collect();
    ensure!(
        unbound.is_empty(),
        "packages without integrity: {}; add what `npm view NAME@VERSION dist.integrity` prints",
        unbound.join(", ")
    );
    Ok(())
}

/// Runs a command of Node.js and shows its output only if it fails.
fn run_quietly(command: &mut Command) -> Result<()> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| missing(command, error))?;
    if !output.status.success() {
        let printed = [output.stdout, output.stderr].concat();
        bail!(
            "{command:?} failed ({}):\n{}",
            output.status,
            String::from_utf8_lossy(&printed)
        );
    }
    Ok(())
}

fn missing(command: &Command, error: io::Error) -> anyhow::Error {
    let program = command.get_program().to_string_lossy().into_owned();
    let is_missing = error.kind() == io::ErrorKind::NotFound;
    let error = anyhow::Error::new(error);
    if is_missing {
        error.context(format!(
            "`{program}` was not found: changing or checking the page needs Node.js 20.19 or \
             newer, with npm"
        ))
    } else {
        error.context(format!("starting `{program}`"))
    }
}

/// Our notice, then the license of each package in the bundle.
fn licenses(ui: &Path) -> Result<String> {
    let mut text = fs::read_to_string(root().join("NOTICE"))?;
    text.push_str(
        "\n`cargo tree --format '{p} {l}'` lists the licenses of the Rust libraries.\n\
         The page contains these packages:\n",
    );
    let manifest: serde_json::Value = serde_json::from_slice(&fs::read(ui.join("package.json"))?)?;
    let packages = manifest["dependencies"]
        .as_object()
        .context("package.json has no dependencies")?;
    for name in packages.keys() {
        let package = ui.join("node_modules").join(name);
        let license = ["LICENSE", "LICENSE.md", "license"]
            .iter()
            .find_map(|file| fs::read_to_string(package.join(file)).ok())
            .with_context(|| format!("the package {name} has no license file"))?;
        let line = "-".repeat(78);
        write!(text, "\n{line}\n{name}\n{line}\n\n{}\n", license.trim())?;
    }
    Ok(text)
}

fn read_all(folder: &Path, prefix: &str, files: &mut Files) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            read_all(&entry.path(), &format!("{path}/"), files)?;
        } else {
            files.insert(path, fs::read(entry.path())?);
        }
    }
    Ok(())
}

/// Removes the files of an earlier copy whose source is gone: they must not be built or checked.
fn remove_deleted(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(to)? {
        let entry = entry?;
        let name = entry.file_name();
        if NOT_COPIED.iter().any(|kept| name == *kept) {
            continue;
        }
        let source = from.join(&name);
        if !entry.file_type()?.is_dir() {
            if !source.exists() {
                fs::remove_file(entry.path())?;
            }
        } else if source.is_dir() {
            remove_deleted(&source, &entry.path())?;
        } else {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

fn copy_all(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if NOT_COPIED.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            copy_all(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_difference_is_named() {
        let committed = files(&[("same.js", "1"), ("changed.js", "1"), ("old.js", "1")]);
        let built = files(&[("same.js", "1"), ("changed.js", "2"), ("new.js", "1")]);
        assert_eq!(
            differences(&committed, &built),
            [
                "collector/page/changed.js is stale",
                "collector/page/new.js is missing",
                "collector/page/old.js is not built any more",
            ]
        );
        assert!(differences(&committed, &committed).is_empty());
    }

    #[test]
    fn a_package_without_integrity_is_not_installed() {
        let lock = |fields: &str| {
            format!(r#"{{"packages": {{"": {{}}, "node_modules/a": {{{fields}}}}}}}"#)
        };
        check_lock(lock(r#""integrity": "sha512-A==""#).as_bytes()).unwrap();
        let error = check_lock(lock(r#""version": "1.0.0""#).as_bytes()).unwrap_err();
        assert!(error.to_string().contains("node_modules/a;"), "{error}");
    }

    fn files(pairs: &[(&str, &str)]) -> Files {
        pairs
            .iter()
            .map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec()))
            .collect()
    }

    #[test]
    fn a_deleted_source_is_removed_from_the_copy_and_packages_stay() {
        let directory = tempfile::tempdir().unwrap();
        let from = directory.path().join("from");
        let to = directory.path().join("to");
        for path in [
            "src/a.ts",
            "old/b.ts",
            "c.ts",
            "node_modules/x/index.js",
            "installed.json",
        ] {
            let path = to.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        fs::create_dir_all(from.join("src")).unwrap();
        fs::write(from.join("src/new.ts"), "").unwrap();
        remove_deleted(&from, &to).unwrap();
        copy_all(&from, &to).unwrap();
        let mut files = Files::new();
        read_all(&to, "", &mut files).unwrap();
        let paths: Vec<_> = files.keys().map(String::as_str).collect();
        assert_eq!(
            paths,
            ["installed.json", "node_modules/x/index.js", "src/new.ts"]
        );
    }

    #[test]
    fn a_missing_program_is_named_with_what_provides_it() {
        let error = run_quietly(&mut Command::new("no-such-npm"))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("`no-such-npm` was not found") && error.contains("Node.js"),
            "{error}"
        );
    }
}
