//! Resources of the machine: processors, memory, disks and network links, and the pressure on them.

use profiler_core::Resource;

use super::file::SystemFile;
use super::process::line_number;
use super::{Reading, TICK_NS};

/// The unit of `/proc/diskstats`, independent of the disk's sectors.
const SECTOR_BYTES: u64 = 512;

#[derive(Debug)]
pub(super) struct Host {
    stat: SystemFile,
    meminfo: SystemFile,
    diskstats: SystemFile,
    links: SystemFile,
    pressures: [(Resource, SystemFile); 3],
}

impl Default for Host {
    fn default() -> Host {
        let pressure = |name| SystemFile::new(format!("/proc/pressure/{name}"));
        Host {
            stat: SystemFile::new("/proc/stat"),
            meminfo: SystemFile::new("/proc/meminfo"),
            diskstats: SystemFile::new("/proc/diskstats"),
            links: SystemFile::new("/proc/self/net/dev"),
            pressures: [
                (Resource::CpuPressure, pressure("cpu")),
                (Resource::MemoryPressure, pressure("memory")),
                (Resource::IoPressure, pressure("io")),
            ],
        }
    }
}

impl Host {
    pub(super) fn read(&mut self, reading: &mut Reading) {
        if let Some(text) = self.stat.read() {
            reading.set(Resource::HostCpu, worked_ns(text));
            reading.set(Resource::HostCpus, processors(text));
        }
        if let Some(text) = self.meminfo.read() {
            let bytes = |start| line_number(text, start).map(|kibibytes| kibibytes << 10);
            let total = bytes("MemTotal:");
            let available = bytes("MemAvailable:");
            let used = total
                .zip(available)
                .map(|(total, free)| total.saturating_sub(free));
            reading.set(Resource::HostMemory, used);
            reading.set(Resource::HostMemoryMax, total);
        }
        if let Some((read, written)) = self.diskstats.read().and_then(disk_bytes) {
            reading.set(Resource::HostDiskRead, Some(read));
            reading.set(Resource::HostDiskWritten, Some(written));
        }
        if let Some((received, sent)) = self.links.read().and_then(link_bytes) {
            reading.set(Resource::NetworkReceived, Some(received));
            reading.set(Resource::NetworkSent, Some(sent));
        }
        for (resource, file) in &mut self.pressures {
            reading.set(*resource, file.read().and_then(pressure_ns));
        }
    }
}

/// The first line of `/proc/stat` has ticks of: user, nice, system, idle, waiting for disks, hard and
/// soft interrupts, and time of other virtual machines, which is no work of this one.
fn worked_ns(stat: &str) -> Option<u64> {
    let numbers: Vec<u64> = stat
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_ascii_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()
        .ok()?;
    let [user, nice, system, _idle, _disks, hard, soft, ..] = numbers[..] else {
        return None;
    };
    let ticks = [user, nice, system, hard, soft]
        .into_iter()
        .fold(0, u64::saturating_add);
    Some(ticks.saturating_mul(TICK_NS))
}

fn processors(stat: &str) -> Option<u64> {
    let lines = stat
        .lines()
        .skip(1)
        .take_while(|line| line.starts_with("cpu"));
    Some(lines.count() as u64).filter(|count| *count > 0)
}

/// Bytes that the disks read and wrote. Partitions, and devices made of other disks, are skipped because
/// they would count twice.
fn disk_bytes(diskstats: &str) -> Option<(u64, u64)> {
    const MADE_OF_OTHERS: [&str; 6] = ["loop", "ram", "zram", "dm-", "md", "nbd"];
    let mut disks: Vec<&str> = Vec::new();
    let mut read = 0u64;
    let mut written = 0u64;
    for line in diskstats.lines() {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, _, name, _, _, sectors_read, _, _, _, sectors_written, ..] = fields[..] else {
            continue;
        };
        let of_others = MADE_OF_OTHERS.iter().any(|start| name.starts_with(start));
        if of_others || disks.iter().any(|disk| is_partition(name, disk)) {
            continue;
        }
        disks.push(name);
        let bytes = |sectors: &str| Some(sectors.parse::<u64>().ok()?.saturating_mul(SECTOR_BYTES));
        read = read.saturating_add(bytes(sectors_read)?);
        written = written.saturating_add(bytes(sectors_written)?);
    }
    (!disks.is_empty()).then_some((read, written))
}

/// `sda1` is one of `sda`, `nvme0n1p2` of `nvme0n1`.
fn is_partition(name: &str, disk: &str) -> bool {
    let Some(rest) = name.strip_prefix(disk) else {
        return false;
    };
    let number = if disk.ends_with(|last: char| last.is_ascii_digit()) {
        rest.strip_prefix('p').unwrap_or_default()
    } else {
        rest
    };
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// Bytes received and sent over all links except the loopback.
fn link_bytes(links: &str) -> Option<(u64, u64)> {
    let mut sums = None;
    for line in links.lines() {
        let Some((name, numbers)) = line.split_once(':') else {
            continue;
        };
        let numbers: Vec<u64> = numbers
            .split_ascii_whitespace()
            .map(str::parse::<u64>)
            .collect::<Result<_, _>>()
            .ok()?;
        let [received, _, _, _, _, _, _, _, sent, ..] = numbers[..] else {
            return None;
        };
        if name.trim_start() != "lo" {
            let (before_received, before_sent) = sums.unwrap_or((0u64, 0u64));
            sums = Some((
                before_received.saturating_add(received),
                before_sent.saturating_add(sent),
            ));
        }
    }
    sums
}

/// Parses `some … total=MICROSECONDS`.
fn pressure_ns(pressure: &str) -> Option<u64> {
    let line = pressure.lines().find(|line| line.starts_with("some "))?;
    let (_, total) = line.rsplit_once("total=")?;
    total.parse::<u64>().ok()?.checked_mul(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_processors_leaves_out_idleness_and_what_others_took() {
        let stat = "cpu  1 20 300 4000 50000 600000 7000000 80 9 9\n\
                    cpu0 1 1 1\ncpu1 1 1 1\nintr 5\nctxt 6\n";
        assert_eq!(worked_ns(stat), Some(7_600_321 * TICK_NS));
        assert_eq!(processors(stat), Some(2));
        for bad in ["", "cpu  1 2 3", "cpu  1 2 3 4 5 x 7", "intr 1 2 3 4 5 6 7"] {
            assert_eq!((worked_ns(bad), processors(bad)), (None, None), "{bad}");
        }
    }

    #[test]
    fn disks_count_once() {
        let line = |name: &str, read: u64, written: u64| {
            format!("   8       0 {name} 9 9 {read} 9 9 9 {written} 9 0 9 9\n")
        };
        let check = |disks: &[(&str, u64, u64)], expected: Option<(u64, u64)>| {
            let text: String = disks
                .iter()
                .map(|(name, read, written)| line(name, *read, *written))
                .collect();
            assert_eq!(disk_bytes(&text), expected, "{disks:?}");
        };
        check(
            &[("sda", 2, 4), ("sda1", 1, 3), ("sda12", 1, 1)],
            Some((1_024, 2_048)),
        );
        check(
            &[("sda", 2, 0), ("sdaa", 2, 0), ("sdaa1", 2, 0)],
            Some((2_048, 0)),
        );
        check(
            &[("nvme0n1", 2, 2), ("nvme0n1p1", 2, 2), ("nvme0n11", 1, 1)],
            Some((1_536, 1_536)),
        );
        check(
            &[
                ("vda", 2, 2),
                ("dm-0", 2, 2),
                ("loop0", 5, 5),
                ("md0", 1, 1),
            ],
            Some((1_024, 1_024)),
        );
        check(&[("xvda1", 2, 2)], Some((1_024, 1_024)));
        check(&[("loop0", 2, 2)], None);
        check(&[], None);
        assert_eq!(disk_bytes("8 0 sda 9 9 x 9 9 9 1 9"), None);
    }

    #[test]
    fn links_count_without_the_loopback() {
        let text = "Inter-|   Receive                  |  Transmit\n \
                    face |bytes    packets errs drop fifo frame compressed multicast|bytes packets\n\
                    \x20   lo:     700  1 0 0 0 0 0 0      700 1 0 0 0 0 0 0\n\
                    \x20 eth0:    5000  1 0 0 0 0 0 0       30 1 0 0 0 0 0 0\n\
                    wlan10:6 1 0 0 0 0 0 0 4 1 0 0 0 0 0 0\n";
        assert_eq!(link_bytes(text), Some((5_006, 34)));
        assert_eq!(link_bytes("lo: 1 1 0 0 0 0 0 0 1 1"), None);
        assert_eq!(link_bytes("eth0: 1 1 0 0 x 0 0 0 1 1"), None);
        assert_eq!(link_bytes("eth0: 1 1"), None);
    }

    #[test]
    fn pressure_is_what_some_threads_waited() {
        let text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=1234\nfull avg10=0.00 total=99\n";
        assert_eq!(pressure_ns(text), Some(1_234_000));
        for bad in [
            "",
            "full avg10=0.00 total=99",
            "some total=x",
            "some total=18446744073709551615",
        ] {
            assert_eq!(pressure_ns(bad), None, "{bad}");
        }
    }
}
