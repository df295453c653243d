//! Streams of agents, through the real routes: decoded, checked, applied, now and then sealed and queried.

use std::sync::Arc;
use std::time::Instant;

use collector::serve::fuzzing::{Subject, framed};
use fuzz::Target;
use fuzz::mutation::Shape;
use fuzz::parts;
use fuzz::streams::{self, BEGIN_S};
use profiler_core::wire::v1::agent_message::Kind;
use prost::Message as _;
use simulation::agent::{Agent, Setup, Time, default_labels};
use simulation::pattern::{Busyness, Pattern};
use simulation::program::{Program, Shape as ProgramShape};
use simulation::random::Random;
use simulation::record::Detail;

use crate::{check, now};

/// Flags: query afterwards; seal and query again.
const QUERY: u8 = 0x0f;
const SEAL: u8 = 0x3f;

/// Each part is a message; an empty one ends the stream, and the next begins another.
pub(crate) const WIRE: Target = Target {
    name: "wire",
    shape: Shape::Messages { head: 0 },
    run,
    seeds,
};

fn run(input: &[u8]) {
    let (flags, rest) = parts::flags(input);
    let parts = parts::split(rest);
    let mut subject = Subject::empty(now());
    for stream in parts.split(|part| part.is_empty()) {
        subject.attach(framed(stream));
    }
    if flags & QUERY == QUERY {
        check(&mut subject);
    }
    if flags & SEAL == SEAL {
        subject.seal().expect("what was accepted can be sealed");
        check(&mut subject);
    }
}

fn seeds() -> Vec<(String, Vec<u8>)> {
    let [one, two] = streams::streams();
    let mut simulated = vec![streams::message(Kind::Hello(streams::hello()))];
    simulated.extend(of_simulation(4));
    vec![
        ("every-field".into(), streams::input(QUERY, &one)),
        ("sealed".into(), streams::input(SEAL, &one)),
        ("two-streams".into(), streams::input(0, &two)),
        ("simulated".into(), streams::input(0, &simulated)),
    ]
}

/// The messages of a simulated agent for so many seconds.
fn of_simulation(seconds: usize) -> Vec<Vec<u8>> {
    let mut random = Random(1);
    let shape = ProgramShape {
        tasks: 2,
        stacks_per_task: 4,
        idle: 2,
        depths: 2..=5,
    };
    let program = Arc::new(Program::generate(shape, &mut random));
    let busyness = Busyness {
        samples: 10,
        prepared: 8,
        ..Busyness::default()
    };
    let pattern = Arc::new(Pattern::new(&program, busyness, &mut random));
    let time = Time {
        first_ns: BEGIN_S * 1_000_000_000,
        step_s: 1,
        burst: 1,
        steps: 60,
        offset_ns: 1_300_000,
    };
    let detail = Detail::Totals;
    let labels = default_labels();
    let setup = Setup {
        worker: "worker-1".into(),
        labels,
        program,
        pattern,
        time,
        detail,
    };
    let mut agent = Agent::new(setup, random);
    let at = Instant::now();
    (0..seconds).for_each(|_| agent.make(at));
    let messages = std::iter::from_fn(|| agent.next_message(at));
    messages.map(|message| message.encode_to_vec()).collect()
}
