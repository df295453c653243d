//! `emberline watch` in a terminal, and without one.

use crate::harness::{Collector, Worker, emberline, run};
use crate::views::terminal::Terminal;

/// A bar grows while tasks run, each picture is drawn over the previous one, and a table replaces
/// it at the end.
#[test]
fn bars_grow_in_a_terminal_and_end_as_a_table() {
    let collector = Collector::start();
    let mut worker = Worker::start("expecting", "w-1", &collector.url(), &[]);
    assert_eq!(worker.line(), "half");
    let command = format!("{} watch --url {}", emberline().display(), collector.url());
    let mut terminal = Terminal::start(&command);
    let half = terminal.until("2 of 4");
    assert!(
        half.contains("load  [##########>         ]  50%  2 of 4"),
        "{half:?}"
    );
    worker.finish();
    let all = terminal.until("STATE");
    // Each line is cleared before it is redrawn.
    let (pictures, table) = all.rsplit_once("\r\u{1b}[2K").unwrap();
    assert!(
        pictures.contains("\r\u{1b}[2Kload  ["),
        "drawn over: {pictures:?}"
    );
    let lines: Vec<&str> = table.lines().map(str::trim_end).collect();
    assert!(lines[0].starts_with("NAME  EXPECTED  DONE"), "{table:?}");
    assert!(terminal.process.wait().success());
    let all = terminal.until("100%");
    let (_, table) = all.rsplit_once("\r\u{1b}[2K").unwrap();
    assert!(
        table.contains("load         4     4    100%        0"),
        "{table:?}"
    );
    assert!(!table.contains('['), "no bar is left: {table:?}");

    // Without a terminal: the table alone.
    let output = run(&["watch", "--url", &collector.url()]);
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let plain = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        plain.contains("load         4     4    100%") && !plain.contains('\u{1b}'),
        "{plain:?}"
    );
}
