//! Why functions of a program have no names, and the way to names: one line for each program.

use std::path::Path;

use api::{Unnamed, UnnamedModule};
use flamegraph::ParsedColumns;
use flamegraph::text::printable;
use profiler_core::{Frame, Profile};
use serde::Deserialize;
use symbol_files::perf_map;

use crate::args::{Stacks, State, Threads, word};
use crate::client::{Client, Query};

/// Most programs with a line.
const PROGRAMS_MAX: usize = 20;
/// The part of a program's CPU time from which on it has a line.
const PERCENT_MIN: u64 = 20;
/// The part of the CPU time of all programs from which on a program may have one.
const SHARE_PERCENT_MIN: u64 = 5;

/// The function that runs Python's functions, and the modules of frames that show them.
const PYTHON_LOOP: &str = "_PyEval_EvalFrameDefault";
const PYTHON_MODULES: [&str; 2] = ["python", perf_map::MODULE];

/// A profile with its functions.
#[derive(Deserialize)]
struct Body {
    unnamed: Unnamed,
    profile: ParsedColumns,
}

/// Why a part of a program's CPU time has no names.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Cause {
    /// A runtime made the code.
    Made { runtime: String },
    /// Only the loop of CPython is seen.
    Python,
    /// Modules have no symbols; this one has the most time.
    Stripped { module: String },
}

impl Cause {
    fn text(&self) -> String {
        match self {
            Cause::Made { runtime } => {
                let way_on = match &**runtime {
                    "java" => {
                        "run it with -XX:+PreserveFramePointer -XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit (from \
                         JDK 17 on), and let it end by itself"
                    }
                    "node" => "run it with --perf-basic-prof",
                    ".NET" => "run it with DOTNET_PerfMapEnabled=1",
                    _ => "names need a runtime that lists its code in /tmp/perf-PID.map, as for perf",
                };
                format!("is in code without names that its runtime made; {way_on}")
            }
            Cause::Python => "is in functions of Python, of which only the interpreter is seen: known are CPython 3.9 to 3.14 \
                              with a GIL; a process that already runs needs --ptrace; python3.12 -X perf writes names"
                .to_owned(),
            Cause::Stripped { module } => format!(
                "is in functions without symbols, most of it in {module}; install debug symbols (Debian: packages *-dbgsym, \
                 *-dbg), or build with symbols"
            ),
        }
    }
}

/// The lines for these commands, without those that took little of the CPU time of all.
///
/// # Errors
/// If the collector does not answer.
pub(super) fn lines<'c>(
    client: &Client,
    range: &Query,
    commands: impl Iterator<Item = &'c str>,
) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    let mut all_ns = 0;
    for command in commands.take(PROGRAMS_MAX) {
        let query = range
            .clone()
            .with("label", format!("command={command}"))
            .with("threads", word(Threads::Program))
            .with("state", word(State::Cpu))
            .with("stacks", word(Stacks::Full))
            .with("format", "columns");
        let body: Body = client.get_json("profile", &query)?;
        let profile = &body.profile.0;
        let total_ns = profile.total().total_ns();
        all_ns += total_ns;
        found.extend(line(command, profile, &body.unnamed.modules).map(|line| (total_ns, line)));
    }
    found.retain(|(total_ns, _)| total_ns * 100 >= all_ns * SHARE_PERCENT_MIN);
    Ok(found.into_iter().map(|(_, line)| line).collect())
}

/// The line of a program; `None` if most of its CPU time has names.
fn line(command: &str, profile: &Profile, unnamed: &[UnnamedModule]) -> Option<String> {
    let mut causes = Causes::default();
    let mut scopes = vec![PythonScope::default(); profile.nodes().len() + 1];
    for (node, number) in profile.nodes().iter().zip(1..) {
        let frame = profile.frame(node.frame);
        let scope = scopes[node.parent.index()].with(&frame);
        scopes[number] = scope;
        let own_ns = node.own.total_ns();
        if let Some(runtime) = perf_map::runtime_of(frame.function) {
            let runtime = runtime.to_owned();
            causes.add(own_ns, Cause::Made { runtime });
        } else if scope.is_loop && !scope.is_named {
            causes.add(own_ns, Cause::Python);
        }
    }
    let has_python = scopes.iter().any(|scope| scope.is_named);
    // Those with the most time are first. Below functions of Python, nobody asks for the interpreter's own.
    let mut files = unnamed.iter().filter(|module| {
        module.module.starts_with('/') && !(has_python && is_python(&module.module))
    });
    if let Some(first) = files.clone().next() {
        let name = Path::new(&first.module).file_name().unwrap_or_default();
        let module = name.to_string_lossy().into_owned();
        let own_ns = files.by_ref().map(|module| module.own_ns).sum();
        causes.add(own_ns, Cause::Stripped { module });
    }
    let (ns, cause) = causes.0.into_iter().max_by_key(|(ns, _)| *ns)?;
    let percent = (ns * 100).checked_div(profile.total().total_ns())?;
    (percent > PERCENT_MIN).then(|| {
        let text = format!("{command}: {percent}% of CPU time {}", cause.text());
        printable(&text).into_owned()
    })
}

/// Whether a file is CPython or its library.
fn is_python(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    name.starts_with("python3") || name.starts_with("libpython3")
}

/// Causes with their time.
#[derive(Default)]
struct Causes(Vec<(u64, Cause)>);

impl Causes {
    fn add(&mut self, ns: u64, cause: Cause) {
        match self.0.iter_mut().find(|(_, known)| *known == cause) {
            Some((sum, _)) => *sum += ns,
            None => self.0.push((ns, cause)),
        }
    }
}

/// Whether a node is in Python's loop, and in a function of Python.
#[derive(Clone, Copy, Default)]
struct PythonScope {
    is_loop: bool,
    is_named: bool,
}

impl PythonScope {
    /// That of a node below.
    fn with(self, frame: &Frame<&str>) -> PythonScope {
        PythonScope {
            is_loop: self.is_loop || frame.function == PYTHON_LOOP,
            is_named: self.is_named || PYTHON_MODULES.contains(&frame.module),
        }
    }
}

#[cfg(test)]
mod tests {
    use profiler_core::{CallTrie, Filter, NodeId, State, SymbolTable, Weight};

    use super::*;

    /// A profile of stacks, outermost first, each function as `module!name`, with their percent of CPU time.
    fn profile_of(stacks: &[(&str, u64)]) -> Profile {
        let mut symbols = SymbolTable::new();
        let mut trie = CallTrie::new(100);
        for (stack, percent) in stacks {
            let mut node = NodeId::ROOT;
            for text in stack.split(';') {
                let (module, name) = text.split_once('!').unwrap_or(("", text));
                let frame = Frame {
                    module,
                    ..Frame::function(name, "", 0)
                };
                node = trie.insert_past_limit(node, symbols.intern(&frame));
            }
            trie.add_weight(node, Weight::of(State::Cpu, *percent));
        }
        let delta = trie.take_delta();
        Profile::collect(&symbols, &trie, [&delta], &Filter::default())
    }

    fn check(stacks: &[(&str, u64)], unnamed: &[(&str, u64)], expected: Option<&str>) {
        let modules: Vec<_> = unnamed
            .iter()
            .map(|(module, own_ns)| UnnamedModule {
                module: (*module).to_owned(),
                own_ns: *own_ns,
                ..UnnamedModule::default()
            })
            .collect();
        let line = line("app", &profile_of(stacks), &modules);
        match (&line, expected) {
            (None, None) => {}
            (Some(line), Some(expected)) => {
                assert!(
                    line.starts_with("app: ") && line.contains(expected),
                    "{line}"
                );
            }
            _ => panic!("{line:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn a_program_has_a_line_by_the_largest_cause() {
        let java = "java;perf-7.map![java: code made at run time]";
        check(
            &[(java, 30), ("java;main", 70)],
            &[("perf-7.map", 30)],
            Some("30% of CPU time is in code without names"),
        );
        check(
            &[(java, 30), ("java;main", 70)],
            &[],
            Some("-XX:+DumpPerfMapAtExit"),
        );
        check(&[(java, 20), ("java;main", 80)], &[], None);
        let node = "node;main;perf-7.map![node: code made at run time]";
        check(
            &[(node, 30), ("node;main", 70)],
            &[],
            Some("--perf-basic-prof"),
        );
        let other = "x;perf-7.map![code made at run time]";
        check(
            &[(other, 90), ("x;main", 10)],
            &[],
            Some("/tmp/perf-PID.map"),
        );
        let loops = "py;main;_PyEval_EvalFrameDefault";
        check(&[(loops, 60), ("py;main", 40)], &[], Some("3.9 to 3.14"));
        let named = "py;main;_PyEval_EvalFrameDefault;[jit]!work;_PyEval_EvalFrameDefault";
        check(&[(named, 90), (loops, 10)], &[], None);
        check(&[("py;python!work;sorted", 100)], &[], None);
        let interpreter = [("/usr/bin/python3.11", 60), ("/usr/lib/libz.so.1", 10)];
        check(&[("py;python!work", 100)], &interpreter, None);
        check(
            &[("ffmpeg;main", 100)],
            &[("/usr/lib/libx264.so.164", 25), ("/usr/lib/libm.so.6", 10)],
            Some("35% of CPU time is in functions without symbols, most of it in libx264.so.164"),
        );
        check(&[], &[], None);
    }
}
