//! Content of a profile: its hottest functions, and how many of its stacks are whole.

use std::collections::HashMap;

/// Functions of the reference that are compared.
const HOTTEST: usize = 10;

/// Outermost functions of threads. `main` and `_start` of a stripped program have no names, their callers do.
const ROOTS: [&str; 9] = [
    "_start",
    "main",
    "__libc_start_main",
    "__libc_start_call_main",
    "start_thread",
    "clone",
    "clone3",
    "__clone3",
    "runtime.goexit",
];
/// Frames from the outermost on in which a root is looked for.
const ROOT_FRAMES: usize = 3;

/// Self times by function, and of how much the root was reached, in any unit.
#[derive(Clone, Debug, Default)]
pub(super) struct Profile {
    self_times: HashMap<String, f64>,
    whole: f64,
    rooted: f64,
}

impl Profile {
    /// Lines of `task;function;...;function weight` of `emberline profile --format collapsed`.
    pub(super) fn of_collapsed(text: &str) -> Profile {
        let mut profile = Profile::default();
        for line in text.lines() {
            let Some((stack, weight)) = line.rsplit_once(' ') else {
                continue;
            };
            let mut frames = stack.split(';');
            let command = frames.next().unwrap_or_default();
            let frames: Vec<&str> = frames.collect();
            let weight = weight.parse().unwrap_or(0.0);
            if let Some(innermost) = frames.last() {
                let is_rooted = !frames[0].starts_with('[');
                profile.add(shared_name(innermost, command), weight, is_rooted);
            }
        }
        profile
    }

    /// Output of `perf script -F ip,sym,dso`: a line for each frame, innermost first, and an empty one behind a sample.
    pub(super) fn of_perf_script(text: &str) -> Profile {
        let mut profile = Profile::default();
        for sample in text.split("\n\n") {
            // Our samples of the kernel are those of the call.
            let frames: Vec<Frame<'_>> = sample
                .lines()
                .filter_map(Frame::parse)
                .filter(|frame| !frame.is_kernel)
                .collect();
            let Some(innermost) = frames.first() else {
                continue;
            };
            let outermost = frames.iter().rev().take(ROOT_FRAMES);
            let is_rooted = outermost
                .into_iter()
                .any(|frame| ROOTS.contains(&plain(frame.name).as_str()));
            profile.add(innermost.shared_name(), 1.0, is_rooted);
        }
        profile
    }

    /// Adds another run of the program.
    pub(super) fn add_all(&mut self, other: Profile) {
        for (function, time) in other.self_times {
            *self.self_times.entry(function).or_default() += time;
        }
        self.whole += other.whole;
        self.rooted += other.rooted;
    }

    fn add(&mut self, function: String, weight: f64, is_rooted: bool) {
        *self.self_times.entry(function).or_default() += weight;
        self.whole += weight;
        if is_rooted {
            self.rooted += weight;
        }
    }

    pub(super) fn roots_percent(&self) -> f64 {
        100.0 * self.rooted / self.whole.max(f64::MIN_POSITIVE)
    }

    /// The function with most self time, and its share in percent.
    pub(super) fn hottest(&self) -> Option<(&str, f64)> {
        let most = self
            .self_times
            .iter()
            .max_by(|one, other| one.1.total_cmp(other.1));
        most.map(|(name, _)| (name.as_str(), self.percent(name)))
    }

    fn percent(&self, function: &str) -> f64 {
        let time = self.self_times.get(function).copied().unwrap_or(0.0);
        100.0 * time / self.whole.max(f64::MIN_POSITIVE)
    }
}

/// The largest difference of shares of the reference's ten hottest functions, in points of percent.
pub(super) fn distance(profile: &Profile, reference: &Profile) -> f64 {
    let mut hottest: Vec<&String> = reference.self_times.keys().collect();
    hottest.sort_by(|one, other| {
        reference
            .percent(other)
            .total_cmp(&reference.percent(one))
            .then(one.cmp(other))
    });
    hottest
        .into_iter()
        .take(HOTTEST)
        .map(|name| (profile.percent(name) - reference.percent(name)).abs())
        .fold(0.0, f64::max)
}

struct Frame<'a> {
    name: &'a str,
    file: &'a str,
    is_kernel: bool,
}

impl<'a> Frame<'a> {
    /// `7f00 name of function (/path/of/file)`
    fn parse(line: &'a str) -> Option<Frame<'a>> {
        let (address, rest) = line.trim_start().split_once(' ')?;
        let address = u64::from_str_radix(address, 16).ok()?;
        let (name, file) = rest.rsplit_once(" (")?;
        Some(Frame {
            name: name.trim(),
            file: file.trim_end_matches(')').rsplit('/').next()?,
            is_kernel: address >> 63 == 1,
        })
    }

    fn shared_name(&self) -> String {
        if self.name == "[unknown]" {
            in_file(self.file)
        } else {
            plain(self.name)
        }
    }
}

/// The name of a function without one. A library is loaded by a link with a shorter version than its file.
fn in_file(file: &str) -> String {
    match file.split_once(".so.") {
        Some((library, _)) => format!("[{library}.so]"),
        None => format!("[{file}]"),
    }
}

/// The name of a function that all profilers have. One without a name is its file: `gzip+0x4a20`, and `gzip` if addresses
/// were merged, are `[gzip]`.
fn shared_name(name: &str, command: &str) -> String {
    match name.split_once("+0x") {
        Some((file, _)) => in_file(file),
        None if name == command || name.ends_with(".so") || name.contains(".so.") => in_file(name),
        None => plain(name),
    }
}

/// A name without the type of its result, its arguments and its version. Of JavaScript, V8 writes `JS:*name file:line`.
fn plain(name: &str) -> String {
    if let Some(script) = name.strip_prefix("JS:") {
        let place = script.trim_start_matches(['*', '~', '^', '+']);
        let function = place.split(' ').next().unwrap_or_default();
        return if function.is_empty() {
            "(anonymous)".to_owned()
        } else {
            function.to_owned()
        };
    }
    if name.starts_with('[') {
        return name.to_owned();
    }
    let name = name.split('@').next().unwrap_or(name);
    let mut depth = 0;
    let mut start = 0;
    let mut end = name.len();
    for (at, character) in name.char_indices() {
        match character {
            '<' => depth += 1,
            '>' => depth -= 1,
            ' ' if depth == 0 => start = at + 1,
            '(' if depth == 0 && at > start => {
                end = at;
                break;
            }
            _ => {}
        }
    }
    name.get(start..end).unwrap_or(name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_profilers_share() {
        for (name, expected) in [
            ("gzip+0x4a20", "[gzip]"),
            ("gzip", "[gzip]"),
            ("libz.so.1", "[libz.so]"),
            ("libz.so.1.2.13+0x20", "[libz.so]"),
            ("memcpy@GLIBC_2.14", "memcpy"),
            (
                "void fill<int>(std::vector<int, std::allocator<int> >&)",
                "fill<int>",
            ),
            ("main.heavy", "main.heavy"),
            ("JS:*mix /srv/work.js:1:13", "mix"),
            ("JS:* /srv/work.js:3:99", "(anonymous)"),
            (
                "[node: code made at run time]",
                "[node: code made at run time]",
            ),
            ("(anonymous namespace)::run(int)", "namespace)::run"),
        ] {
            assert_eq!(shared_name(name, "gzip"), expected);
        }
    }

    #[test]
    fn samples_of_perf_have_user_frames_and_roots() {
        let text = "ffffffff81000000 copy ([kernel.kallsyms])\n 7f01 read (/lib/libc.so.6)\n\
                    7f02 __libc_start_main@@GLIBC_2.34 (/lib/libc.so.6)\n 55 [unknown] (/bin/gzip)\n\n\
                    55 [unknown] (/bin/gzip)\n\n";
        let profile = Profile::of_perf_script(text);
        assert!((profile.roots_percent() - 50.0).abs() < 1e-9);
        assert!((profile.percent("read") - 50.0).abs() < 1e-9);
        let ours = Profile::of_collapsed("gzip;main;read 30\ngzip;[truncated];gzip+0x10 10\n");
        assert!((ours.roots_percent() - 75.0).abs() < 1e-9);
        assert!((distance(&ours, &profile) - 25.0).abs() < 1e-9);
        assert_eq!(ours.hottest(), Some(("read", 75.0)));
    }
}
