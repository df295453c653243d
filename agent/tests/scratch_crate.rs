//! The agent as a stranger uses it: a crate outside this workspace depends on `emberline-agent` by
//! path, and builds and runs each program of `agent/examples/` and `agent/diagnostics/examples/`. Once as it is, and once with
//! `--cfg emberline_no_sampler`, which is the agent of platforms without a sampler.
//!
//! The crate's dependencies are those that the examples name, offline and at the versions of this
//! workspace's lockfile. Build results stay in the workspace's target directory for the next run.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Most time for all programs together, which run at the same time; each needs about 5 s.
const RUN_TIME_MAX: Duration = Duration::from_secs(120);

const DEPENDENCIES: &str = r#"
rayon = "*"
tokio = { version = "*", features = ["macros", "rt-multi-thread", "time"] }
tracing = "*"
tracing-subscriber = { version = "*", default-features = false, features = ["registry", "std"] }
"#;

#[test]
#[ignore = "long"]
fn a_crate_outside_the_workspace_builds_and_runs_every_example() {
    let scratch = Scratch::create("sampler");
    let outputs = scratch.build_and_run("");
    assert!(
        outputs["local_recording"].contains("sampler: full"),
        "{outputs:?}"
    );
    assert!(
        outputs["local_recording"].contains("200 tasks"),
        "{outputs:?}"
    );
}

#[test]
#[ignore = "long"]
fn without_a_sampler_every_example_builds_and_runs() {
    let scratch = Scratch::create("no-sampler");
    let outputs = scratch.build_and_run("--cfg emberline_no_sampler");
    let recording = &outputs["local_recording"];
    assert!(
        recording.contains("sampler: off: there is no sampler"),
        "{recording}"
    );
    assert!(recording.contains("0 tasks in 0 ticks"), "{recording}");
    assert!(
        outputs["local_diagnostics"].contains("40 tasks"),
        "{outputs:?}"
    );

    let mut cargo = scratch.cargo("--cfg emberline_no_sampler");
    let listed = cargo.args(["tree", "--package", "emberline-agent", "--edges", "normal"]);
    let tree = String::from_utf8(listed.output().unwrap().stdout).unwrap();
    assert!(tree.contains("rtrb "), "{tree}");
    for linux_only in ["nix ", "framehop ", "gimli ", "tonic "] {
        assert!(
            !tree.contains(linux_only),
            "{linux_only} is a dependency of:\n{tree}"
        );
    }
}

/// A crate in a temporary directory.
struct Scratch {
    directory: tempfile::TempDir,
    target: PathBuf,
    examples: Vec<String>,
}

impl Scratch {
    /// `name` separates the build results of different flags, so that both stay valid.
    fn create(name: &str) -> Scratch {
        let agent = Path::new(env!("CARGO_MANIFEST_DIR"));
        let directory = tempfile::tempdir().unwrap();
        let programs = directory.path().join("src/bin");
        fs::create_dir_all(&programs).unwrap();
        let mut examples = Vec::new();
        let folders = ["examples", "diagnostics/examples"];
        for entry in folders
            .into_iter()
            .flat_map(|it| fs::read_dir(agent.join(it)).unwrap())
        {
            let path = entry.unwrap().path();
            fs::copy(&path, programs.join(path.file_name().unwrap())).unwrap();
            examples.push(path.file_stem().unwrap().to_str().unwrap().to_owned());
        }
        let diagnostics = agent.join("diagnostics");
        let manifest = format!(
            "[package]\nname = \"scratch\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
             [dependencies]\nemberline-agent = {{ path = {agent:?}, features = [\"tracing-layer\"] }}\n\
             emberline-diagnostics = {{ path = {diagnostics:?} }}{DEPENDENCIES}\n\
             [profile.dev]\ndebug = false\n\n[workspace]\n"
        );
        fs::write(directory.path().join("Cargo.toml"), manifest).unwrap();
        let workspace = agent.parent().unwrap();
        fs::copy(
            workspace.join("Cargo.lock"),
            directory.path().join("Cargo.lock"),
        )
        .unwrap();
        // The directory of this test is `target/tmp`.
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("scratch-{name}"));
        Scratch {
            directory,
            target,
            examples,
        }
    }

    fn cargo(&self, rust_flags: &str) -> Command {
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .current_dir(self.directory.path())
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_NET_OFFLINE", "true")
            .env("RUSTFLAGS", rust_flags);
        cargo
    }

    /// Returns what each program printed, by its name.
    fn build_and_run(&self, rust_flags: &str) -> BTreeMap<String, String> {
        let built = self
            .cargo(rust_flags)
            .args(["build", "--bins"])
            .output()
            .unwrap();
        assert!(
            built.status.success(),
            "{}",
            String::from_utf8_lossy(&built.stderr)
        );
        let mut running: Vec<(&String, Child)> = Vec::new();
        for example in &self.examples {
            let program = Command::new(self.target.join("debug").join(example))
                .current_dir(self.directory.path())
                // Nobody listens there: a collector on this machine must not see these workers.
                .env("EMBERLINE_URL", "http://127.0.0.1:1")
                .env("TMPDIR", self.directory.path())
                .stdin(Stdio::null())
                .stdout(fs::File::create(self.output_of(example)).unwrap())
                .spawn()
                .unwrap();
            running.push((example, program));
        }
        let deadline = Instant::now() + RUN_TIME_MAX;
        let mut outputs = BTreeMap::new();
        for (example, mut program) in running {
            let status = wait_until(deadline, &mut program);
            let output = fs::read_to_string(self.output_of(example)).unwrap();
            assert!(
                status.is_some_and(|status| status.success()),
                "{example}: {status:?} {output}"
            );
            assert!(!output.is_empty(), "{example} prints what it has done");
            outputs.insert(example.clone(), output);
        }
        outputs
    }

    fn output_of(&self, example: &str) -> PathBuf {
        self.directory.path().join(format!("{example}.out"))
    }
}

/// Returns the program's status, or `None` after killing it at the deadline.
fn wait_until(deadline: Instant, program: &mut Child) -> Option<std::process::ExitStatus> {
    loop {
        if let Some(status) = program.try_wait().unwrap() {
            return Some(status);
        }
        if Instant::now() >= deadline {
            program.kill().unwrap();
            program.wait().unwrap();
            return None;
        }
        thread::sleep(Duration::from_millis(20));
    }
}
