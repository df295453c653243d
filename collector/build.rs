//! Builds the page with npm, away from the source tree, and lists its files for `serve::page`.
//!
//! `ui/` is copied below `OUT_DIR`, so that nothing is ever written beside the sources. The same
//! sources give the same bytes: versions are locked, names hold hashes of contents, and the
//! compression is ours.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

/// What the page is built from. Tests and tools beside it do not rebuild the collector.
const SOURCES: [&str; 6] =
    ["index.html", "package.json", "package-lock.json", "tsconfig.json", "vite.config.ts", "src"];

/// Compression of the files: they are written once and read for years.
const LEVEL: u8 = 10;

/// What went wrong, in words for who builds.
type Result<T> = std::result::Result<T, String>;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_PAGE").is_none() {
        return;
    }
    for source in SOURCES {
        println!("cargo::rerun-if-changed=ui/{source}");
    }
    println!("cargo::rerun-if-changed=../NOTICE");
    if let Err(error) = build() {
        eprintln!("\nEmberline's page was not built: {error}\n");
        exit(1);
    }
}

fn build() -> Result<()> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo gave no OUT_DIR")?);
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("ui");
    let folder = out.join("ui");
    refresh(&sources, &folder)?;
    install(&folder)?;
    run(&folder, "node", &["node_modules/vite/bin/vite.js", "build", "--logLevel", "warn"])?;
    let dist = folder.join("dist");
    let licenses = licenses(&folder, &sources)?;
    write(&dist.join("licenses.txt"), licenses.as_bytes())?;
    let list = list(&dist, &out.join("gzip"))?;
    write(&out.join("page_files.rs"), list.as_bytes())
}

/// Makes `folder` hold the sources as they are now, and leaves what npm installed there.
fn refresh(sources: &Path, folder: &Path) -> Result<()> {
    for name in SOURCES.into_iter().chain(["dist"]) {
        remove(&folder.join(name))?;
    }
    SOURCES.iter().try_for_each(|name| copy(&sources.join(name), &folder.join(name)))
}

/// Installs the locked packages, unless they are there.
fn install(folder: &Path) -> Result<()> {
    let lock = read(&folder.join("package-lock.json"))?;
    let stamp = folder.join("installed.json");
    if fs::read(&stamp).is_ok_and(|installed| installed == lock) {
        return Ok(());
    }
    // Scripts of packages do not run; nothing but the lock decides what is installed.
    let options = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"];
    run(folder, "npm", &options)?;
    write(&stamp, &lock)
}

/// Runs a command and shows what it said if it fails.
fn run(folder: &Path, program: &str, arguments: &[&str]) -> Result<()> {
    let command = format!("{program} {}", arguments.join(" "));
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .env("NODE_ENV", "production")
        // npm would leave out what only building needs.
        .env("npm_config_include", "dev")
        .output()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => missing(program),
            _ => format!("`{program}` could not be started: {error}"),
        })?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(format!(
        "`{command}` failed in {} ({}):\n{}\nWithout the page, all else builds with \
         `--no-default-features`.",
        folder.display(),
        output.status,
        String::from_utf8_lossy(&said)
    ))
}

/// The two ways on without node.
fn missing(program: &str) -> String {
    format!(
        "`{program}` was not found.\n\
         - Install Node.js 20.19 or newer, which brings npm (https://nodejs.org), and build again; or\n\
         - build without the page: `cargo build --release --no-default-features`. The collector, its \
         API and all commands are there then, only the page in the browser is not."
    )
}

/// The licences of what is delivered: our notice, then each package that the page holds.
fn licenses(folder: &Path, sources: &Path) -> Result<String> {
    let notice = sources.join("../../NOTICE");
    let mut text = String::from_utf8_lossy(&read(&notice)?).into_owned();
    text.push_str(
        "\nRust libraries are listed with their licences by `cargo tree --format '{p} {l}'`.\n\
         The page holds these packages:\n",
    );
    let manifest = String::from_utf8_lossy(&read(&folder.join("package.json"))?).into_owned();
    for name in dependencies(&manifest) {
        let package = folder.join("node_modules").join(&name);
        let license = ["LICENSE", "LICENSE.md", "license"]
            .iter()
            .find_map(|file| fs::read_to_string(package.join(file)).ok())
            .ok_or_else(|| format!("the package {name} has no file with its licence"))?;
        let line = "-".repeat(78);
        write!(text, "\n{line}\n{name}\n{line}\n\n{}\n", license.trim())
            .map_err(|error| error.to_string())?;
    }
    Ok(text)
}

/// The names below `"dependencies"`, in a file that we write ourselves, one a line.
fn dependencies(manifest: &str) -> Vec<String> {
    let lines = manifest.lines().map(str::trim);
    let inside = lines.skip_while(|line| !line.starts_with("\"dependencies\"")).skip(1);
    inside
        .take_while(|line| !line.starts_with('}'))
        .filter_map(|line| line.split('"').nth(1))
        .map(str::to_owned)
        .collect()
}

/// Rust that embeds each file, plain and compressed, in order of their names.
fn list(dist: &Path, gzip: &Path) -> Result<String> {
    remove(gzip)?;
    let mut paths = Vec::new();
    collect(dist, "", &mut paths)?;
    paths.sort();
    let mut text = String::from("&[\n");
    for path in &paths {
        let plain = dist.join(path);
        let packed = gzip.join(path);
        write(&packed, &compressed(&read(&plain)?))?;
        writeln!(
            text,
            "    File {{ path: {path:?}, plain: include_bytes!({plain:?}), gzip: \
             include_bytes!({packed:?}) }},"
        )
        .map_err(|error| error.to_string())?;
    }
    text.push_str("]\n");
    Ok(text)
}

/// A gzip file (RFC 1952) without a time or a name, so that it depends on nothing but `bytes`.
fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut file = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 0xff];
    file.extend(miniz_oxide::deflate::compress_to_vec(bytes, LEVEL));
    file.extend(crc32fast::hash(bytes).to_le_bytes());
    file.extend((bytes.len() as u32).to_le_bytes());
    file
}

fn collect(folder: &Path, prefix: &str, paths: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(folder).map_err(|error| at(folder, &error))? {
        let entry = entry.map_err(|error| at(folder, &error))?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            collect(&entry.path(), &format!("{name}/"), paths)?;
        } else {
            paths.push(name);
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if !from.is_dir() {
        return write(to, &read(from)?);
    }
    let mut paths = Vec::new();
    collect(from, "", &mut paths)?;
    paths.iter().try_for_each(|path| write(&to.join(path), &read(&from.join(path))?))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|error| at(path, &error))
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().expect("every file here is in a folder");
    fs::create_dir_all(folder).map_err(|error| at(folder, &error))?;
    fs::write(path, bytes).map_err(|error| at(path, &error))
}

fn remove(path: &Path) -> Result<()> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(path, &error)),
        _ => Ok(()),
    }
}

fn at(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}
