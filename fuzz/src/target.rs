//! A target, chosen by the environment: a program has several, and libFuzzer owns its arguments.

use std::panic;
use std::path::Path;
use std::sync::OnceLock;

use nix::sys::resource::{Resource, setrlimit};

use crate::mutation::{self, Shape};

/// Names the target.
pub const TARGET: &str = "EMBERLINE_FUZZ_TARGET";

/// Names a folder: the target's seeds are written there, and the program ends.
pub const SEEDS: &str = "EMBERLINE_FUZZ_SEEDS";

/// Most bytes of memory that a run may use. A larger allocation fails, which ends the program. libFuzzer's
/// own limit looks at resident memory now and then, and sees no allocation that is not touched.
const MEMORY_BYTES_MAX: u64 = 512 << 20;

/// One target.
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    /// Shape of its inputs.
    pub shape: Shape,
    /// Runs an input. Panics if it finds a defect.
    pub run: fn(&[u8]),
    /// Valid inputs, by name.
    pub seeds: fn() -> Vec<(String, Vec<u8>)>,
}

static CHOSEN: OnceLock<&'static Target> = OnceLock::new();

/// Chooses the target, or writes its seeds. A panic ends the program, unless it is expected.
///
/// # Panics
/// If there is no such target, or the seeds cannot be written.
pub fn start(targets: &'static [Target], is_panic_expected: fn() -> bool) {
    let name = std::env::var(TARGET).unwrap_or_default();
    let target = targets
        .iter()
        .find(|target| target.name == name)
        .unwrap_or_else(|| panic!("{TARGET}={name:?} names no target"));
    if let Some(folder) = std::env::var_os(SEEDS) {
        write_seeds(target, Path::new(&folder));
        std::process::exit(0);
    }
    // libFuzzer's hook, which ends the program.
    let end = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !is_panic_expected() {
            end(info);
        }
    }));
    setrlimit(Resource::RLIMIT_DATA, MEMORY_BYTES_MAX, MEMORY_BYTES_MAX)
        .expect("a limit can be lowered");
    let _ = CHOSEN.set(target);
}

fn write_seeds(target: &Target, folder: &Path) {
    for (name, seed) in (target.seeds)() {
        (target.run)(&seed);
        std::fs::write(folder.join(name), seed).expect("the folder of seeds can be written to");
    }
}

fn chosen() -> &'static Target {
    CHOSEN.get().expect("the program has started")
}

/// Runs an input of the chosen target.
pub fn run(input: &[u8]) {
    (chosen().run)(input);
}

/// Mutates an input of the chosen target in `data`, which holds `size` bytes of it. Returns its new size.
pub fn mutate(data: &mut [u8], size: usize, size_max: usize, seed: u32) -> usize {
    mutation::mutate(chosen().shape, data, size, size_max, seed)
}
