//! The machine on which the figures were measured.

use std::fs;
use std::process::Command;

/// The load average now; `?` if it is unknown.
pub(crate) fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ')
        .next()
        .filter(|word| !word.is_empty())
        .unwrap_or("?")
        .to_owned()
}

/// One sentence: date, processor, kernel, load average before and now.
pub(crate) fn describe(load_before: &str) -> String {
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let information = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = model(&information).unwrap_or("unknown processor");
    let date = output("date", &["-u", "+%Y-%m-%d"]).unwrap_or_default();
    let kernel = output("uname", &["-r"]).unwrap_or_default();
    let load = load_average();
    let ticks = match kernel_hertz() {
        Some(hertz) => format!(
            "{hertz} ticks a second, which is the most that a timer on a thread's CPU clock can see"
        ),
        None => "with an unknown number of ticks a second".to_owned(),
    };
    format!(
        "{date}, {processors} processors ({model}), load average {load_before} before and {load} \
         after, Linux {kernel}, {ticks}."
    )
}

fn model(information: &str) -> Option<&str> {
    let line = information
        .lines()
        .find_map(|line| line.strip_prefix("model name"))?;
    Some(line.split_once(':')?.1.trim())
}

/// The kernel's ticks per second, if its configuration is readable.
fn kernel_hertz() -> Option<u32> {
    let release = output("uname", &["-r"])?;
    let text = output("zcat", &["/proc/config.gz"])
        .or_else(|| fs::read_to_string(format!("/boot/config-{release}")).ok())?;
    hertz_in(&text)
}

fn hertz_in(configuration: &str) -> Option<u32> {
    configuration
        .lines()
        .find_map(|line| line.strip_prefix("CONFIG_HZ=")?.parse().ok())
}

/// The output of a command; `None` if it is missing or fails.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_and_processor_are_read_from_what_linux_writes() {
        assert_eq!(hertz_in("CONFIG_HZ_250=y\nCONFIG_HZ=250\n"), Some(250));
        assert_eq!(hertz_in("# CONFIG_HZ is not set\n"), None);
        assert_eq!(
            model("processor\t: 0\nmodel name\t: AMD EPYC\n"),
            Some("AMD EPYC")
        );
        assert_eq!(model(""), None);
    }
}
