//! A worker that does to itself what programs do to profilers, for the soak and the tests of
//! hostile processes. It prints its progress, then its result as one line of JSON.
//!
//! ```text
//! hostile-worker soak SPAWNS LOADS EXECS CROWD LIBRARY|- [unsampled]
//! hostile-worker MODE …      one of the names in `modes`, `edges` and `guests`
//! ```

mod edges;
mod guests;
mod modes;
mod soak;
mod sys;

use anyhow::{Context, Result, bail};

pub(crate) fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if words.first() != Some(&"silent") {
        tracing_subscriber::fmt()
            .with_writer(std::io::stderr)
            .with_ansi(false)
            .init();
    }
    let record = match words[..] {
        ["soak", spawns, loads, execs, crowd, library, ref rest @ ..] => {
            let number = |text: &str| text.parse().with_context(|| format!("`{text}`"));
            let amounts = soak::Amounts {
                spawns: number(spawns)?,
                loads: number(loads)?,
                execs: number(execs)?,
                crowd: number(crowd)?,
            };
            let library = Some(library.to_owned()).filter(|path| path != "-");
            soak::run(&amounts, library, !rest.contains(&"unsampled"))
        }
        [mode, ref rest @ ..] => {
            let modes = [modes::run, edges::run, guests::run];
            let found = modes.into_iter().find_map(|run| run(mode, rest));
            found.with_context(|| format!("no mode {mode}"))?
        }
        [] => bail!("usage: hostile-worker soak … | MODE"),
    };
    println!("{record}");
    Ok(())
}
