//! Flushes and dictionaries that a collector rejects.

use super::*;

#[test]
fn a_rejected_flush_is_counted_and_the_dictionary_continues() {
    let mut agent = Agent::new();
    agent.sample("load", &["read"]);
    agent.sample("load", &["read"]);
    let mut session = agent.open(Collector::new().welcome()).unwrap();
    session.next_message(at(0)).unwrap();
    session.next_message(at(0)).unwrap();
    session.receive(refusal(1, [1, 0, 1]), at(0)).unwrap();
    let mut collector = Collector {
        mark: 1,
        ..Collector::new()
    };
    while let Some(message) = session.next_message(at(0)) {
        collector.take(message);
    }
    assert_eq!(
        collector.dictionaries[0].strings,
        ["load", "read", "main.rs"]
    );
    let account = collector.flushes[0].account.unwrap();
    assert_eq!(
        (
            account.accepted_ns,
            account.lost_rejected_ns,
            account.lost_tasks
        ),
        (20, 10, 1)
    );
}

#[test]
fn too_many_rejected_dictionaries_end_the_stream() {
    let mut agent = Agent::new();
    agent.sample("load", &["read"]);
    let mut session = agent.open(Collector::new().welcome()).unwrap();
    for _ in 1..DICTIONARY_REFUSALS_MAX {
        let kind = session.next_message(at(0)).unwrap().kind;
        assert!(
            matches!(kind, Some(agent_message::Kind::Dictionary(_))),
            "{kind:?}"
        );
        session.receive(refusal(0, [0, 0, 0]), at(0)).unwrap();
    }
    let error = session.receive(refusal(0, [0, 0, 0]), at(0)).unwrap_err();
    let text = "the collector rejected 3 dictionaries; last reason: \"no\\nroom\"";
    assert_eq!(error.to_string(), text);
    // Nothing was sent that needed it, so nothing is lost.
    assert_eq!(
        agent.outbox.get_mut().unwrap().current_account().unacked_ns,
        10
    );
}

/// Otherwise each flush could cost the whole dictionary.
#[test]
fn rejected_flushes_that_forget_the_dictionary_end_the_stream() {
    let mut agent = Agent::new();
    for _ in 0..DICTIONARY_REFUSALS_MAX {
        agent.sample("load", &["read"]);
    }
    let mut session = agent.open(Collector::new().welcome()).unwrap();
    let mut dictionaries = 0;
    let mut flushes = 0;
    let error = loop {
        match session.next_message(at(0)).unwrap().kind {
            Some(agent_message::Kind::Dictionary(_)) => dictionaries += 1,
            Some(agent_message::Kind::Flush(_)) => {
                flushes += 1;
                if let Err(error) = session.receive(refusal(flushes, [1, 0, 1]), at(0)) {
                    break error;
                }
            }
            other => panic!("unexpected {other:?}"),
        }
    };
    assert!(
        matches!(error, SessionError::DictionaryRefused { .. }),
        "{error}"
    );
    assert_eq!(
        (dictionaries, flushes),
        (3, u64::from(DICTIONARY_REFUSALS_MAX))
    );
}

#[test]
fn marks_are_clamped_to_existing_entries() {
    let mut agent = Agent::new();
    agent.sample("load", &["read"]);
    let mut session = agent.open(Collector::new().welcome()).unwrap();
    session.receive(refusal(0, [u32::MAX; 3]), at(0)).unwrap();
    let held = marks_of(&lock(session.tables));
    let kind = session.next_message(at(0)).unwrap().kind;
    assert!(
        matches!(kind, Some(agent_message::Kind::Flush(_))),
        "{kind:?}"
    );
    assert_eq!(session.next_message(at(0)), None);
    // New entries after that are still sent.
    assert_eq!(session.marks, held);
}
