//! Code without a module, which a runtime has made while the program runs.

use profiler_core::{Frame, FrameKind};
use symbols::perf_map::{file_name, unnamed_label};

use super::Subject;

/// Most searches for the runtime in the list of mappings, which is long if there are many threads.
const SEARCHES_MAX: u32 = 8;

/// Beginnings of names of files, and the runtimes whose files they are.
const LIBRARIES: [(&str, &str); 4] = [
    ("libjvm.so", "java"),
    ("libcoreclr.so", ".NET"),
    ("libnode.so", "node"),
    ("libluajit", "LuaJIT"),
];

/// Names of programs that are runtimes.
const PROGRAMS: [(&str, &str); 3] = [("node", "node"), ("nodejs", "node"), ("luajit", "LuaJIT")];

/// How code is shown that no [file](super::perf_map) names.
#[derive(Debug, Default)]
pub(super) struct MadeCode {
    runtime: Option<&'static str>,
    searches: u32,
}

impl MadeCode {
    /// The frame of the code at `address`: all code of a process has the same label.
    pub(super) fn frame(&mut self, subject: &Subject, address: u64) -> Frame<String> {
        if self.runtime.is_none() && self.searches < SEARCHES_MAX {
            self.searches += 1;
            self.runtime = subject.text("maps").as_deref().and_then(runtime_in);
        }
        let label = unnamed_label(self.runtime);
        Frame {
            kind: FrameKind::Unresolved,
            module: file_name(subject.inner_id()),
            offset: address,
            ..Frame::function(&label, "", 0).map(str::to_owned)
        }
    }
}

/// The runtime in a list of mappings.
fn runtime_in(maps: &str) -> Option<&'static str> {
    maps.lines().find_map(|line| {
        let (_, name) = line.rsplit_once('/')?;
        let library = LIBRARIES.iter().find(|(start, _)| name.starts_with(start));
        let program = PROGRAMS.iter().find(|(program, _)| name == *program);
        library.or(program).map(|(_, runtime)| *runtime)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_is_known_by_the_files_that_are_mapped() {
        let maps = |file: &str| {
            format!(
                "7f00-7f01 r-xp 00000000 00:00 0 \n7f01-7f02 r-xp 00000000 08:01 7    {file}\n7f03-7f04 rw-p 0 0 0 [stack]"
            )
        };
        for (file, expected) in [
            ("/usr/lib/jvm/java-17/lib/server/libjvm.so", Some("java")),
            ("/usr/bin/node", Some("node")),
            ("/usr/lib/libnode.so.108", Some("node")),
            ("/usr/lib/libluajit-5.1.so.2.1.0", Some("LuaJIT")),
            ("/usr/bin/nodes", None),
            ("/usr/lib/libc.so.6", None),
        ] {
            assert_eq!(runtime_in(&maps(file)), expected, "{file}");
        }
    }
}
