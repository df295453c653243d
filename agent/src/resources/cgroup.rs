//! Usage and limits of the process's control group, in both versions of control groups.

use std::path::Path;

use profiler_core::Resource;

use super::Reading;
use super::file::SystemFile;
use super::process::line_number;

const MOUNT: &str = "/sys/fs/cgroup";

/// Groups above the process's own whose limits are read too.
const LEVELS_MAX: usize = 16;

/// Readings between two checks of the process's group: ten seconds at two per second.
const MEMBERSHIP_READS: u32 = 20;

/// The first version has a number above this where there is no limit.
const UNLIMITED_FROM: u64 = 1 << 62;

#[derive(Debug)]
pub(super) struct Cgroup {
    membership: SystemFile,
    /// The text of `membership` for which the files were chosen.
    chosen_for: String,
    readings: u32,
    files: Files,
}

#[derive(Debug, Default)]
struct Files {
    memory: Option<SystemFile>,
    memory_limits: Vec<SystemFile>,
    cpu_limits: Vec<CpuLimit>,
    cpu_stat: Option<SystemFile>,
}

/// A limit as CPU time per period.
#[derive(Debug)]
enum CpuLimit {
    /// Version 2: both in one file.
    Two(SystemFile),
    /// Version 1: one file each.
    One {
        quota: SystemFile,
        period: SystemFile,
    },
}

impl Default for Cgroup {
    fn default() -> Cgroup {
        Cgroup {
            membership: SystemFile::new("/proc/self/cgroup"),
            chosen_for: String::new(),
            readings: 0,
            files: Files::default(),
        }
    }
}

impl Cgroup {
    pub(super) fn read(&mut self, reading: &mut Reading) {
        if self.readings % MEMBERSHIP_READS == 0 {
            self.update_membership();
        }
        self.readings = self.readings.wrapping_add(1);
        self.files.read(reading);
    }

    fn update_membership(&mut self) {
        let Some(membership) = self.membership.read() else {
            return;
        };
        if membership != self.chosen_for {
            self.files = Files::choose(membership, MOUNT);
            self.chosen_for = membership.to_owned();
        }
    }
}

impl Files {
    /// Chooses the files of the groups in `membership`, the text of `/proc/self/cgroup`.
    fn choose(membership: &str, mount: &str) -> Files {
        let memory = Controller::find(membership, mount, "memory");
        let cpu = Controller::find(membership, mount, "cpu");
        let mut files = Files::default();
        if let Some(memory) = memory {
            let (usage, limit) = if memory.first_version {
                ("memory.usage_in_bytes", "memory.limit_in_bytes")
            } else {
                ("memory.current", "memory.max")
            };
            files.memory = memory.folders.first().and_then(|own| existing(own, usage));
            files.memory_limits = memory
                .folders
                .iter()
                .filter_map(|folder| existing(folder, limit))
                .collect();
        }
        if let Some(cpu) = cpu {
            files.cpu_stat = cpu
                .folders
                .first()
                .and_then(|own| existing(own, "cpu.stat"));
            files.cpu_limits = cpu
                .folders
                .iter()
                .filter_map(|folder: &String| {
                    if cpu.first_version {
                        Some(CpuLimit::One {
                            quota: existing(folder, "cpu.cfs_quota_us")?,
                            period: existing(folder, "cpu.cfs_period_us")?,
                        })
                    } else {
                        Some(CpuLimit::Two(existing(folder, "cpu.max")?))
                    }
                })
                .collect();
        }
        files
    }

    fn read(&mut self, reading: &mut Reading) {
        reading.set(
            Resource::CgroupMemory,
            self.memory.as_mut().and_then(SystemFile::read_number),
        );
        // `max`, which is not a number, is no limit.
        let limits = self
            .memory_limits
            .iter_mut()
            .filter_map(SystemFile::read_number);
        reading.set(
            Resource::CgroupMemoryMax,
            limits.filter(|limit| *limit < UNLIMITED_FROM).min(),
        );
        let limits = self.cpu_limits.iter_mut().filter_map(CpuLimit::thousandths);
        reading.set(Resource::CgroupCpuMax, limits.min());
        let throttled = self
            .cpu_stat
            .as_mut()
            .and_then(SystemFile::read)
            .and_then(throttled_ns);
        reading.set(Resource::CgroupThrottled, throttled);
    }
}

/// The folders of a controller's groups: the process's own, and its parents.
#[derive(Debug, PartialEq, Eq)]
struct Controller {
    first_version: bool,
    folders: Vec<String>,
}

impl Controller {
    fn find(membership: &str, mount: &str, name: &str) -> Option<Controller> {
        // Lines are `number:controllers:path`; the second version has 0 and no controllers.
        let lines = membership.lines().filter_map(|line| {
            let mut parts = line.splitn(3, ':');
            Some((parts.next()?, parts.next()?, parts.next()?))
        });
        let first_version_line = lines.clone().find(|(_, controllers, _)| {
            controllers.split(',').any(|controller| controller == name)
        });
        let (roots, path) = match first_version_line {
            Some((_, controllers, path)) => (
                vec![format!("{mount}/{name}"), format!("{mount}/{controllers}")],
                path,
            ),
            None => {
                let (_, _, path) = lines
                    .clone()
                    .find(|(number, controllers, _)| *number == "0" && controllers.is_empty())?;
                (vec![mount.to_owned(), format!("{mount}/unified")], path)
            }
        };
        let first_version = first_version_line.is_some();
        let probe = if first_version {
            "tasks"
        } else {
            "cgroup.procs"
        };
        let root = roots
            .into_iter()
            .find(|root| Path::new(root).join(probe).exists())?;
        Some(Controller {
            first_version,
            folders: folders(&root, path),
        })
    }
}

/// Returns the folder of `path` below `root` and its parents, the root last. In a container the path may
/// be the one on the host, which does not exist; then the root is the container's own group.
fn folders(root: &str, path: &str) -> Vec<String> {
    let mut path = path.trim_matches('/');
    let exists = |path: &str| Path::new(root).join(path).is_dir();
    if path.split('/').any(|part| part == "..") || !exists(path) {
        path = "";
    }
    let mut folders = Vec::new();
    while !path.is_empty() && folders.len() < LEVELS_MAX {
        folders.push(format!("{root}/{path}"));
        path = path.rsplit_once('/').map_or("", |(above, _)| above);
    }
    folders.push(root.to_owned());
    folders
}

fn existing(folder: &str, name: &str) -> Option<SystemFile> {
    let path = format!("{folder}/{name}");
    Path::new(&path).exists().then(|| SystemFile::new(path))
}

impl CpuLimit {
    /// Returns thousandths of a processor; `None` without a limit.
    fn thousandths(&mut self) -> Option<u64> {
        let (quota, period): (u64, u64) = match self {
            CpuLimit::Two(file) => {
                let (quota, period) = file.read()?.trim_end().split_once(' ')?;
                (quota.parse().ok()?, period.parse().ok()?)
            }
            // Without a limit the quota is -1, which does not parse.
            CpuLimit::One { quota, period } => (quota.read_number()?, period.read_number()?),
        };
        quota.saturating_mul(1_000).checked_div(period)
    }
}

fn throttled_ns(cpu_stat: &str) -> Option<u64> {
    let microseconds = line_number(cpu_stat, "throttled_usec ");
    let nanoseconds = microseconds.and_then(|time| time.checked_mul(1_000));
    nanoseconds.or_else(|| line_number(cpu_stat, "throttled_time "))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A tree of files as the kernel shows it, and the reading of it.
    fn check(membership: &str, files: &[(&str, &str)], expected: &[(Resource, u64)]) {
        let mount = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = mount.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let mut reading = Reading::default();
        Files::choose(membership, mount.path().to_str().unwrap()).read(&mut reading);
        let seen: Vec<_> = Resource::ALL
            .into_iter()
            .zip(reading.0)
            .filter_map(|(of, value)| Some((of, value?)))
            .collect();
        assert_eq!(seen, expected, "{membership}");
    }

    #[test]
    fn limits_of_all_groups_above_count_and_the_least_holds() {
        use Resource::{CgroupCpuMax, CgroupMemory, CgroupMemoryMax, CgroupThrottled};
        let second = [
            ("cgroup.procs", ""),
            ("a/memory.max", "5000\n"),
            ("a/cpu.max", "max 100000\n"),
            ("a/b/memory.current", "4000\n"),
            ("a/b/memory.max", "max\n"),
            ("a/b/cpu.max", "150000 100000\n"),
            (
                "a/b/cpu.stat",
                "usage_usec 9\nnr_throttled 2\nthrottled_usec 70\n",
            ),
        ];
        let expected = [
            (CgroupMemory, 4_000),
            (CgroupMemoryMax, 5_000),
            (CgroupCpuMax, 1_500),
            (CgroupThrottled, 70_000),
        ];
        check("0::/a/b\n", &second, &expected);
        let first = [
            ("memory/tasks", ""),
            ("memory/a/memory.usage_in_bytes", "4000\n"),
            ("memory/a/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/memory.limit_in_bytes", "6000\n"),
            ("cpu,cpuacct/tasks", ""),
            ("cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
            ("cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
            ("cpu,cpuacct/c/cpu.cfs_quota_us", "50000\n"),
            ("cpu,cpuacct/c/cpu.cfs_period_us", "100000\n"),
            (
                "cpu,cpuacct/c/cpu.stat",
                "nr_periods 1\nthrottled_time 70\n",
            ),
        ];
        let expected = [
            (CgroupMemory, 4_000),
            (CgroupMemoryMax, 6_000),
            (CgroupCpuMax, 500),
            (CgroupThrottled, 70),
        ];
        check("4:memory:/a\n3:cpu,cpuacct:/c\n0::/\n", &first, &expected);
    }

    /// In a container the root is the container's group, whatever path the machine knows it by.
    #[test]
    fn a_path_that_is_not_there_is_the_root() {
        let files = [
            ("cgroup.procs", ""),
            ("memory.current", "1\n"),
            ("memory.max", "2\n"),
        ];
        let expected = [(Resource::CgroupMemory, 1), (Resource::CgroupMemoryMax, 2)];
        for membership in ["0::/", "0::/docker/0123", "0::/../other", "0::/../../etc"] {
            check(membership, &files, &expected);
        }
    }

    #[test]
    fn what_makes_no_sense_is_left_out() {
        let files = [
            ("cgroup.procs", ""),
            ("memory.current", "-1\n"),
            ("memory.max", "\n"),
            ("cpu.max", "100000 0\n"),
            ("cpu.stat", "throttled_usec 18446744073709551615\n"),
        ];
        check("0::/", &files, &[]);
        for membership in ["", "0", "0:", "::", "x:y:z", "4:memory:/"] {
            check(membership, &files, &[]);
        }
    }
}
