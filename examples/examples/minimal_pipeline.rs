//! Reads the files of a folder again and again for ten seconds: words, then zstd.

use std::time::{Duration, Instant};
use std::{collections::HashSet, env, fs};

fn main() -> anyhow::Result<()> {
    let url = env::var("EMBERLINE_URL").unwrap_or("http://127.0.0.1:4747".into());
    let agent = emberline_agent::Agent::builder().collector(url);
    let _agent = agent.worker("pipeline").start()?;
    let folder = env::args().nth(1).unwrap_or(".".into());
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        files.extend(Some(entry?.path()).filter(|path| path.is_file()));
    }
    let begun = Instant::now();
    for file in files.iter().cycle() {
        if begun.elapsed() > Duration::from_secs(10) {
            break;
        }
        let begin = |name: &str| emberline_agent::task(name).key(file.display().to_string());
        let task = begin("read").start();
        let text = String::from_utf8_lossy(&fs::read(file)?).into_owned();
        drop(task);

        let task = begin("count").start();
        let words = distinct_words(&text);
        drop(task);

        let _task = begin("compress").start();
        let bytes = zstd::bulk::compress(text.as_bytes(), 9)?.len();
        println!("{words} words, {bytes} bytes: {}", file.display());
    }
    Ok(())
}

fn distinct_words(text: &str) -> usize {
    text.split_whitespace().collect::<HashSet<_>>().len()
}
