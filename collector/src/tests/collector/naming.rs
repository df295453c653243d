//! Symbol files of programs that many workers run.

use std::fs;

use ::naming::testing::{Libraries, code, source};
use base::sync::lock;

use super::*;

#[test]
fn a_thousand_workers_of_one_build_are_symbolized_once() {
    let libraries = Libraries::compile();
    let build = &libraries.build_id;
    let code = code(&libraries);
    let folder = libraries.folder.path();
    let made = folder.join("made");
    fs::write(&made, libraries.symbols("a")).unwrap();
    let debug = folder.join(format!(".build-id/{}/{}.debug", &build[..2], &build[2..]));
    fs::create_dir_all(debug.parent().unwrap()).unwrap();
    fs::write(&debug, "its reader does not look").unwrap();
    let starts = folder.join("starts");
    let script = format!(
        "echo start >> {}; cp {} $6",
        starts.display(),
        made.display()
    );
    let naming = libraries.naming(Some(source(&libraries, &script)));
    let collector = Collector::new(Settings {
        naming,
        ..Settings::default()
    });
    let naming = &collector.state.naming;

    let mut nodes = Vec::new();
    for number in 0..1_000 {
        let mut worker = TestWorker::new(&format!("w{number}"), 1);
        let attachment = at_once(collector.ingest.attach(
            &state::testing::account(),
            worker.hello(),
            at(0),
        ))
        .unwrap()
        .attachment;
        code.iter()
            .for_each(|address| worker.count_offset("load", build, *address));
        let dictionary = worker.dictionary().unwrap();
        assert_eq!(
            collector
                .ingest
                .receive_dictionary(&attachment, &dictionary, at(0))
                .unwrap(),
            None
        );
        let session = lock(&attachment.cell.state);
        nodes.push(session.translation.node(profiler_core::NodeId(2)).unwrap());
    }
    let name = |node: profiler_core::NodeId| {
        let excerpt = collector.state.excerpt([node.0].into_iter().collect());
        let path = excerpt.path(excerpt.node(node));
        let frames = path.map(|frame| excerpt.frame(frame).function.to_owned());
        frames.collect::<Vec<_>>()
    };
    assert!(nodes.iter().all(|node| name(*node)[0].is_empty()));
    assert!(naming.find_next() && !naming.find_next());
    for node in nodes {
        assert_eq!(name(node).last().unwrap(), "load");
        assert!(
            name(node).iter().any(|function| function == "sum"),
            "{:?}",
            name(node)
        );
        assert!(!naming.find_next());
    }
    assert_eq!(
        fs::read_to_string(&starts).unwrap().lines().count(),
        1,
        "starts of the reader"
    );
    assert_eq!(naming.names_kept(), 1, "addresses that were looked up");
}
