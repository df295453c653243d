//! Messages of the wire, both ways: decoded and checked as far as that needs no collector. Runs ten times as
//! many inputs a second as the target that has one.

use fuzz::Target;
use fuzz::mutation::Shape;
use fuzz::parts;
use fuzz::streams;
use profiler_core::wire::v1::{agent_message, collector_message};
use profiler_core::wire::{
    FlushDeltaCodec, Translation, decode_applied, decode_cycle, decode_settings, decode_task,
    decode_telemetry, decode_thread_dump, decode_threads, measure, v1,
};
use profiler_core::{CallTrie, SymbolTable};
use prost::Message as _;

/// Room of the tree: past it, stacks are cut.
const NODES_MAX: usize = 1_000;

/// Each part is a message of one stream.
pub(crate) const MESSAGES: Target = Target {
    name: "messages",
    shape: Shape::Messages { head: 0 },
    run: |input| {
        let (_, rest) = parts::flags(input);
        let mut receiver = Receiver {
            symbols: SymbolTable::new(),
            trie: CallTrie::new(NODES_MAX),
            translation: Translation::default(),
            codec: FlushDeltaCodec::default(),
        };
        for part in parts::split(rest) {
            receiver.receive(part);
            if let Ok(v1::CollectorMessage {
                kind: Some(collector_message::Kind::Settings(settings)),
            }) = v1::CollectorMessage::decode(part)
            {
                let _ = decode_settings(&settings);
            }
        }
    },
    seeds: || {
        let [one, two] = streams::streams();
        vec![
            ("one-stream".into(), streams::input(0, &one)),
            ("two-streams".into(), streams::input(0, &two)),
        ]
    },
};

/// State that a collector keeps of a stream.
struct Receiver {
    symbols: SymbolTable,
    trie: CallTrie,
    translation: Translation,
    codec: FlushDeltaCodec,
}

impl Receiver {
    fn receive(&mut self, bytes: &[u8]) {
        if measure(bytes).is_err() {
            return;
        }
        let Ok(v1::AgentMessage { kind: Some(kind) }) = v1::AgentMessage::decode(bytes) else {
            return;
        };
        match kind {
            agent_message::Kind::Dictionary(dictionary) => self.dictionary(&dictionary),
            agent_message::Kind::Flush(flush) => self.flush(flush),
            agent_message::Kind::Applied(applied) => drop(decode_applied(applied)),
            agent_message::Kind::ThreadDump(dump) => {
                drop(decode_thread_dump(&dump, self.translation.marks().nodes));
            }
            // The collector checks pieces of symbols without a state of the stream.
            agent_message::Kind::SymbolPiece(_)
            | agent_message::Kind::Hello(_)
            | agent_message::Kind::Goodbye(_) => {}
        }
    }

    fn dictionary(&mut self, dictionary: &v1::Dictionary) {
        let before = self.translation.marks();
        let applied = self
            .translation
            .apply(dictionary, &mut self.symbols, &mut self.trie);
        if applied.is_err() {
            assert_eq!(
                self.translation.marks(),
                before,
                "an invalid dictionary changes nothing"
            );
        }
    }

    fn flush(&mut self, mut flush: v1::Flush) {
        self.codec.decode(&mut flush);
        let nodes = self.translation.marks().nodes;
        if let Some(cycle) = &flush.cycle {
            if let Ok((range, delta)) = decode_cycle(cycle, nodes) {
                assert!(range.start() <= range.stop());
                let known =
                    |node: u32| self.translation.node(profiler_core::NodeId(node)).is_some();
                assert!(delta.entries().iter().all(|(node, _, _)| known(node.0)));
            }
            let _ = decode_threads(cycle, nodes);
        }
        let text = |index| Some(self.symbols.string(self.translation.string(index)?).clone());
        for task in &flush.tasks {
            if let Ok(record) = decode_task(task, &text) {
                assert!(record.stop.is_none_or(|stop| record.start <= stop));
            }
        }
        let _ = decode_telemetry(&flush, &text);
    }
}
