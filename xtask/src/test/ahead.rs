//! Compiles and installs what later steps need while the tests run, which wait for almost half of their
//! time.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use xtask::root;

/// `cargo xtask test --prepare`, at the lowest priority, so that tests find the processors free. What it
/// could not prepare, the steps do again themselves, and then they say what is wrong.
pub(crate) struct Ahead {
    process: Child,
}

impl Ahead {
    /// Prepares the steps with these names.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub(crate) fn start(steps: &[String]) -> Result<Ahead> {
        let log = File::create(root().join("target/prepare.log"))?;
        let mut command = Command::new("nice");
        // Not the program's path: the step `build` may have replaced the file.
        let program = format!("/proc/{}/exe", std::process::id());
        command.args(["-n", "19", &program]);
        command.args(["test", "--prepare", "--only"]).arg(steps.join(","));
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        // A group of its own: it starts cargo, which starts compilers.
        let process = command.process_group(0).spawn().context("starting nice")?;
        Ok(Ahead { process })
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// If the system cannot wait for the process.
    pub(crate) fn wait(mut self) -> Result<()> {
        self.process.wait().context("waiting for the preparation of later steps")?;
        Ok(())
    }
}

impl Drop for Ahead {
    /// Ends the compilers too, if a step fails before they are done.
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            let _ = killpg(Pid::from_raw(self.process.id().cast_signed()), Signal::SIGTERM);
            let _ = self.process.wait();
        }
    }
}
