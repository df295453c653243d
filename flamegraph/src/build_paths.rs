//! Files that leave a machine do not name the directories in which the program was built.

use profiler_core::{Frame, State};

use crate::testing::from_rows;
use crate::{ExportOptions, ProfileColumns, collapsed, firefox, nested_json, pprof, speedscope};
use crate::{SvgOptions, svg};

#[test]
fn no_export_names_a_directory_of_the_build() {
    const FILES: [&str; 3] = [
        "/home/me/work/app/src/main.rs",
        "/home/me/.cargo/registry/src/index.crates.io-1949/tokio-1.40.0/src/task.rs",
        "/home/me/work/app/native.c",
    ];
    let functions = FILES.map(|file| Frame::function("run", file, 7));
    let stack = [Frame::task("t")].into_iter().chain(functions).collect();
    let profile = from_rows([(stack, State::Cpu, 10_000_000)]);
    let options = ExportOptions::default();
    let mut message = Vec::new();
    let gzip = pprof(&profile, &options);
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&gzip[..]), &mut message).unwrap();
    let texts = [
        String::from_utf8_lossy(&message).into_owned(),
        speedscope(&profile, &options),
        firefox(&profile, &options),
        nested_json(&profile),
        serde_json::to_string(&ProfileColumns::new(&profile)).unwrap(),
        collapsed(&profile),
        svg(&profile, &SvgOptions::default()).unwrap(),
    ];
    for text in texts {
        assert!(!text.contains("/home/me"), "{text}");
    }
}
