//! Allocations of reading a pprof: a text for each name, and little else.

use flamegraph::messages::pprof as proto;
use prost::Message as _;

use super::*;
use crate::import_into;

/// A message with a sample of each group of ten functions.
fn message(functions: u64) -> Vec<u8> {
    let mut texts = vec![String::new(), "cpu".to_owned(), "nanoseconds".to_owned()];
    let mut message = proto::Profile {
        sample_type: vec![proto::ValueType { kind: 1, unit: 2 }],
        ..Default::default()
    };
    for id in 1..=functions {
        texts.push(format!("example.com/shop/store.(*Cache).Get{id}"));
        message.function.push(proto::Function {
            id,
            name: texts.len() as i64 - 1,
            ..Default::default()
        });
        let line = vec![proto::Line {
            function_id: id,
            line: 7,
        }];
        message.location.push(proto::Location {
            id,
            line,
            ..Default::default()
        });
    }
    let ids: Vec<u64> = (1..=functions).collect();
    for stack in ids.chunks(10) {
        message.sample.push(proto::Sample {
            location_id: stack.to_vec(),
            value: vec![1],
            label: Vec::new(),
        });
    }
    message.string_table = texts;
    message.encode_to_vec()
}

#[test]
fn reading_pprof_allocates_a_text_for_each_name_and_little_else() {
    let message = message(2_000);
    let options = ImportOptions {
        format: Some(ImportFormat::Pprof),
        ..ImportOptions::default()
    };
    let measured = allocation_counter::measure(|| drop(import(&message, &options).unwrap()));
    // The rest is tables that grow by doubling.
    assert!(measured.count_total < 2_000 + 200, "{measured:?}");
}

/// Of a receiver that has all of it.
#[test]
fn names_and_stacks_that_the_receiver_has_allocate_nothing() {
    let message = message(2_000);
    let options = ImportOptions {
        format: Some(ImportFormat::Pprof),
        ..ImportOptions::default()
    };
    let known = known::Earlier(import(&message, &options).unwrap());
    let measured = allocation_counter::measure(|| {
        let imported = import_into(&known, &message, &options).unwrap();
        assert_eq!(imported.known_samples.len(), 200);
    });
    // Lists that grow by doubling.
    assert!(measured.count_total < 100, "{measured:?}");
}
