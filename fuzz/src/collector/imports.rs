//! Files of other profilers, as `emberline import` reads them.

use flamegraph::{ExportOptions, collapsed, firefox, pprof, speedscope};
use fuzz::Target;
use fuzz::mutation::Shape;
use fuzz::parts;
use import::testing::sum_ns;
use import::{ImportError, ImportFormat, ImportOptions, Imported, import};
use jfr::Integers;
use jfr::testing::{Datum, TestChunk};

/// A byte that chooses the format, or its detection, then the file.
pub(crate) const IMPORTS: Target = Target {
    name: "imports",
    shape: Shape::Bytes,
    run,
    seeds,
};

const PERF: &str = "\
app  100/101 [002] 12.000000:     250000 cpu-clock:ppp:
\t    55d0 app::load+0x12 (/opt/app)
\t    55c0 app::main+0x8 (/opt/app)

app  100/101 [002] 12.250000:     250000 cpu-clock:ppp:
\t    55c0 app::main+0x8 (/opt/app)
";

const CHROME: &str = r#"{"nodes":[{"id":1,"callFrame":{"functionName":"(root)","url":"","lineNumber":-1},"children":[2]},
{"id":2,"callFrame":{"functionName":"work","url":"app.js","lineNumber":3},"hitCount":2}],
"startTime":1000,"endTime":3000,"samples":[2,2],"timeDeltas":[1000,1000]}"#;

/// A profile of pprof that is not compressed, so that mutations reach its fields: 100 ns in `main`.
const PPROF: &[u8] =
    b"\x0a\x04\x08\x01\x10\x02\x12\x06\x0a\x01\x01\x12\x01\x64\x22\x08\x08\x01\x22\x04\x08\x01\
    \x10\x07\x2a\x04\x08\x01\x10\x03\x32\x00\x32\x03cpu\x32\x0bnanoseconds\x32\x04main";

fn run(input: &[u8]) {
    let (choice, file) = parts::flags(input);
    // One more choice than there are formats: detection by content.
    let choice = usize::from(choice) % (ImportFormat::ALL.len() + 1);
    let format = ImportFormat::ALL.get(choice).copied();
    let options = ImportOptions {
        format,
        ..ImportOptions::default()
    };
    match import(file, &options) {
        Ok(imported) => {
            check(&imported);
            if let Some(sum) = sum_ns(file, imported.format) {
                assert_eq!(
                    u128::from(imported.total_ns()),
                    sum,
                    "the sum of a second reading"
                );
            }
        }
        Err(error) => check_error(&error),
    }
}

/// Checks the properties that the sender of an import relies on.
fn check(imported: &Imported) {
    assert!(imported.duration_ns > 0, "a profile has a length");
    for sample in &imported.samples {
        assert!(sample.nanoseconds > 0, "a sample has a weight");
        assert!(
            imported.trie.node(sample.node).is_some(),
            "a sample has a stack"
        );
        assert!(
            imported.trie.node(sample.thread).is_some(),
            "a sample has a thread"
        );
    }
    assert_eq!(imported.profile().total().total_ns(), imported.total_ns());
}

fn check_error(error: &ImportError) {
    assert!(!error.to_string().is_empty(), "an error says what is wrong");
}

fn seeds() -> Vec<(String, Vec<u8>)> {
    let stacks = b"load;main;parse 300000000\nload;main;read 100000000\n";
    let imported = import(stacks, &ImportOptions::default()).expect("they are valid");
    let profile = imported.profile();
    let options = ExportOptions::default();
    let files = ImportFormat::ALL.map(|format| match format {
        ImportFormat::Pprof => PPROF.to_vec(),
        ImportFormat::Collapsed => collapsed(&profile).into_bytes(),
        ImportFormat::Perf => PERF.as_bytes().to_vec(),
        ImportFormat::Speedscope => speedscope(&profile, &options).into_bytes(),
        ImportFormat::Firefox => firefox(&profile, &options).into_bytes(),
        ImportFormat::Chrome => CHROME.as_bytes().to_vec(),
        ImportFormat::Jfr => recording(Integers::Raw),
    });
    let named = (0_u8..).zip(ImportFormat::ALL).zip(files);
    let mut seeds: Vec<(String, Vec<u8>)> = named
        .map(|((choice, format), file)| {
            let options = ImportOptions {
                format: Some(format),
                ..ImportOptions::default()
            };
            import(&file, &options).expect("a seed is valid");
            (format.name().to_owned(), [&[choice], &file[..]].concat())
        })
        .collect();
    let detected = [
        &[ImportFormat::ALL.len() as u8],
        &pprof(&profile, &options)[..],
    ]
    .concat();
    seeds.push(("gzip".to_owned(), detected));
    let jfr = ImportFormat::ALL.len() as u8 - 1;
    let compressed = [&[jfr], &recording(Integers::Compressed)[..]].concat();
    seeds.push(("jfr-compressed".to_owned(), compressed));
    seeds
}

/// A recording with a sample, a wait and a setting.
fn recording(integers: Integers) -> Vec<u8> {
    let mut chunk = TestChunk::new(integers);
    chunk.setting("jdk.ExecutionSample", "interval", "10000000");
    let values = [
        ("sampledThread", chunk.thread("main", 1)),
        ("eventThread", chunk.thread("main", 1)),
        (
            "stackTrace",
            chunk.stack(&["app/Main.work:7", "app/Main.main:3"]),
        ),
        ("state", chunk.state("STATE_RUNNABLE")),
        ("duration", Datum::Number(1_000_000)),
    ];
    chunk.event("jdk.ExecutionSample", &values);
    chunk.event("jdk.ThreadSleep", &values);
    chunk.bytes()
}
