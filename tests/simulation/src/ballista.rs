//! A Ballista cluster of stock programs: a scheduler and two executors.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::process::Usage;
use crate::proxy::free_port;
use crate::service::Service;
use anyhow::Result;

/// Executors, with a processor each.
pub const EXECUTORS: usize = 2;

/// After so many seconds without a sign of life, the scheduler gives an executor's work to others.
const EXECUTOR_TIMEOUT_SECONDS: u32 = 15;

/// How often it looks for such executors, in seconds; less than the time-out.
const EXECUTOR_CHECK_SECONDS: u32 = 5;

/// An executor's signs of life, in seconds.
const HEARTBEAT_SECONDS: u32 = 5;

/// Its processes, killed when they are dropped.
#[derive(Debug)]
pub struct BallistaCluster {
    /// The scheduler's HOST:PORT.
    pub scheduler: String,
    /// Executors first, which end before their scheduler.
    pub services: Vec<Service>,
}

impl BallistaCluster {
    /// Starts the programs of a folder and waits until they are ready. Logs and work are in `folder`.
    ///
    /// # Errors
    /// If a program does not start.
    pub fn start(
        programs: &Path,
        folder: &Path,
        environment: &[(String, String)],
    ) -> Result<BallistaCluster> {
        let variables = || environment.iter().map(|(name, value)| (name, value));
        let port = free_port()?.to_string();
        let mut command = Command::new(programs.join("ballista-scheduler"));
        command.envs(variables());
        command.args(["--bind-host", "127.0.0.1", "--external-host", "127.0.0.1"]);
        command.args(["--bind-port", &port]);
        for (option, seconds) in [
            ("--executor-timeout-seconds", EXECUTOR_TIMEOUT_SECONDS),
            (
                "--expire-dead-executor-interval-seconds",
                EXECUTOR_CHECK_SECONDS,
            ),
        ] {
            command.args([option, &seconds.to_string()]);
        }
        let mut scheduler = Service::start("scheduler", command, folder)?;
        scheduler.ready_by_tcp(port.parse()?)?;
        let mut services = vec![scheduler];
        for number in 0..EXECUTORS {
            let name = format!("executor-{number}");
            let work = folder.join(format!("{name}-work"));
            fs::create_dir_all(&work)?;
            let health = free_port()?;
            let mut command = Command::new(programs.join("ballista-executor"));
            command.envs(variables()).arg("--work-dir").arg(work);
            command.args(["--bind-host", "127.0.0.1", "--external-host", "127.0.0.1"]);
            command.args(["--scheduler-host", "127.0.0.1", "--scheduler-port", &port]);
            for (option, port) in [
                ("--bind-port", free_port()?),
                ("--bind-grpc-port", free_port()?),
                ("--bind-health-port", health),
            ] {
                command.args([option, &port.to_string()]);
            }
            let heartbeat = HEARTBEAT_SECONDS.to_string();
            command.args([
                "--vcores",
                "1",
                "--executor-heartbeat-interval-seconds",
                &heartbeat,
            ]);
            services.insert(0, Service::start(&name, command, folder)?);
            services[0].ready_by_http(health)?;
        }
        Ok(BallistaCluster {
            scheduler: format!("127.0.0.1:{port}"),
            services,
        })
    }

    /// The resources that its processes have used.
    ///
    /// # Errors
    /// If one has ended.
    pub fn usage(&self) -> Result<Vec<Usage>> {
        self.services
            .iter()
            .map(|service| Usage::of(service.id()))
            .collect()
    }
}
