//! Requests of every route over a store that a stranger's agents and pushes filled.

use collector::serve::fuzzing::Subject;
use fuzz::Target;
use fuzz::mutation::Shape;
use fuzz::parts;

use crate::now;

/// Flag: the store is sealed before the requests.
const SEAL: u8 = 1;

/// Most texts of an input.
const TEXTS_MAX: usize = 16;

/// Flags, then parts: choices of parameters, and the texts of the stranger.
pub(crate) const REQUESTS: Target = Target {
    name: "requests",
    shape: Shape::Messages { head: 0 },
    run,
    seeds,
};

fn run(input: &[u8]) {
    let (flags, rest) = parts::flags(input);
    let parts = parts::split(rest);
    let Some((choices, texts)) = parts.split_first() else {
        return;
    };
    let texts: Vec<String> = texts
        .iter()
        .take(TEXTS_MAX)
        .map(|text| String::from_utf8_lossy(text).into_owned())
        .collect();
    let mut subject = Subject::empty(now());
    subject.fill(&texts);
    if flags & SEAL != 0 {
        subject.seal().expect("what was accepted can be sealed");
    }
    let mut choices = choices.iter().cycle().zip(1_usize..);
    // Each request has other choices, also if the input has few.
    subject.ask_every_route(&texts, &mut |count| {
        choices.next().map_or(0, |(choice, number)| {
            (usize::from(*choice) + number) % count
        })
    });
}

fn seeds() -> Vec<(String, Vec<u8>)> {
    let choices: &[u8] = &[3, 7, 11, 13, 29];
    let texts: [&[u8]; 6] = [
        b"load",
        b"b\n",
        b"aa;curl x|sh #",
        "\u{202e}é".as_bytes(),
        b"..",
        b"",
    ];
    let seed = |flags: u8| {
        let parts = [&[choices][..], &texts[..]].concat();
        (
            format!("texts-{flags}"),
            [vec![flags], parts::join(&parts)].concat(),
        )
    };
    vec![seed(0), seed(SEAL)]
}
