//! Libraries that are loaded in turn at one address: time belongs to the one that was loaded.

use super::outside::{Target, attach_until_the_end, compiled_from, time_of};
use super::*;

/// Largest error of a share: a library is known some ticks after it was loaded.
const ERROR_MAX: f64 = 0.1;

struct Compiled {
    program: PathBuf,
    plugins: [String; 2],
}

fn compiled(folder: &Path) -> Compiled {
    let plugins = ["first_plugin", "second_plugin"].map(|name| {
        let define = format!("-DPLUGIN={name}");
        let file = format!("{name}.so");
        compiled_from("reloaded.c", folder, &file, &["-shared", "-fPIC", &define])
            .display()
            .to_string()
    });
    Compiled {
        program: compiled_from("reloaded.c", folder, "reloaded", &["-ldl"]),
        plugins,
    }
}

fn check(collector: &Collector) {
    let (status, text) = collector.get("/api/v1/profile.collapsed");
    assert_eq!(status, 200, "{text}");
    let [first, second] =
        [";first_plugin", ";second_plugin"].map(|name| time_of(&text, &[name]) as f64);
    let share = first / (first + second);
    assert!((share - 0.25).abs() <= ERROR_MAX, "{share}: {text}");
}

#[test]
fn libraries_at_one_address_have_their_own_names() {
    let folder = tempfile::tempdir().unwrap();
    let Compiled { program, plugins } = compiled(folder.path());
    let collector = Collector::start();
    let mut command = under_emberline(&collector.url(), &[]);
    let done = output(command.arg(&program).args(&plugins));
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    ended_workers(&collector, "reloaded", 1);
    check(&collector);
}

#[test]
fn libraries_at_one_address_have_their_own_names_from_outside() {
    let folder = tempfile::tempdir().unwrap();
    let Compiled { program, plugins } = compiled(folder.path());
    let collector = Collector::start();
    let [first, second] = &plugins;
    let target = Target::start(&program, &[first, second, "at-signal"]);
    attach_until_the_end(&collector, target);
    check(&collector);
}
