//! Measures an encoded message before memory is allocated for it.

use super::WireError;
use super::v1;
use crate::limits::MESSAGE_ENTRIES_MAX;

const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const BYTES: u64 = 2;
const FIXED_32: u64 = 5;

/// Memory of a row: the decoded message, the checked record, and its places in maps.
const ROW_BYTES: usize = 384;

/// Memory of a smaller entry: a string, frame, thread, label or phase.
const ENTRY_BYTES: usize = 96;

/// Memory of a byte of packed numbers: each may be a number of its own.
const PACKED_BYTES: usize = 8;

/// Memory of a byte of a cycle's weights, which may be a weight of its own.
const WEIGHT_BYTES: usize = 24;

// Memory of the largest entries once decoded, without their texts.
const _: () = assert!(MESSAGE_ENTRIES_MAX * size_of::<v1::Task>() <= 64 << 20);
const _: () = assert!(size_of::<v1::Task>() <= ROW_BYTES);
const _: () = assert!(size_of::<v1::TransferEvent>() <= ROW_BYTES);
const _: () = assert!(size_of::<v1::Frame>() <= ENTRY_BYTES);
const _: () = assert!(size_of::<v1::ThreadStack>() <= ENTRY_BYTES);
const _: () = assert!(size_of::<v1::Phase>() <= ENTRY_BYTES);

/// Content of a field of a message's kind.
#[derive(Clone, Copy)]
enum Content {
    /// Text, or a message of scalars and texts.
    Entry,
    /// A message with lists of its own, of which these fields are packed numbers.
    Row {
        packed: [u64; 2],
    },
    Packed,
    Weights,
}

/// The content of a field, by the numbers of the kind and of its field in `emberline.proto`.
const fn content(kind: u64, field: u64) -> Content {
    match (kind, field) {
        // Dictionary: node_parent_gaps, node_frames.
        (2, 6 | 7) => Content::Packed,
        // Flush: cycle, tasks, totals, transfers, resources.
        (3, 4) => Content::Weights,
        (3, 5 | 8) => Content::Row { packed: [0, 0] },
        (3, 7) => Content::Row { packed: [5, 6] },
        (3, 9) => Content::Row { packed: [3, 4] },
        _ => Content::Entry,
    }
}

/// Checks that an encoded `AgentMessage` has at most [`MESSAGE_ENTRIES_MAX`] entries, and returns the
/// memory in bytes that it takes until it is applied, roughly and rather too much. An entry is a string
/// or message at any depth below the message's kind, or eight bytes of packed numbers.
///
/// # Errors
/// [`WireError::TooLarge`], or [`WireError::Unreadable`] if the bytes are not a message.
pub fn measure(message: &[u8]) -> Result<usize, WireError> {
    let mut sum = Sum {
        entries: 0,
        bytes: message.len(),
    };
    fields(message, &mut |kind, body| {
        let Some(body) = body else { return Ok(()) };
        fields(body, &mut |field, entry| {
            sum.add(content(kind, field), entry)
        })
    })?;
    Ok(sum.bytes)
}

#[derive(Clone, Copy)]
struct Sum {
    entries: usize,
    bytes: usize,
}

impl Sum {
    /// Counts a field; `None` is a number.
    fn add(&mut self, content: Content, field: Option<&[u8]>) -> Result<(), WireError> {
        let Some(bytes) = field else {
            self.bytes += PACKED_BYTES;
            return Ok(());
        };
        self.entries += 1;
        self.bytes += match content {
            Content::Entry => ENTRY_BYTES + bytes.len(),
            Content::Row { .. } => ROW_BYTES,
            Content::Packed => {
                self.entries += bytes.len() / PACKED_BYTES;
                PACKED_BYTES * bytes.len()
            }
            Content::Weights => WEIGHT_BYTES * bytes.len(),
        };
        super::check_size(
            "the number of a message's entries",
            self.entries,
            MESSAGE_ENTRIES_MAX,
        )?;
        if let Content::Row { packed } = content {
            fields(bytes, &mut |number, field| {
                let is_packed = packed.contains(&number);
                self.add(
                    if is_packed {
                        Content::Packed
                    } else {
                        Content::Entry
                    },
                    field,
                )
            })?;
        }
        Ok(())
    }
}

/// Called with a field's number and bytes.
type Visit<'a> = dyn FnMut(u64, Option<&[u8]>) -> Result<(), WireError> + 'a;

/// Calls `visit` with the number of each field, and its bytes if it is length-delimited: a string, a
/// message or a packed list.
fn fields(mut message: &[u8], visit: &mut Visit<'_>) -> Result<(), WireError> {
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        let wire_type = tag & 7;
        let length = match wire_type {
            VARINT => {
                varint(&mut message)?;
                visit(tag >> 3, None)?;
                continue;
            }
            FIXED_64 => 8,
            FIXED_32 => 4,
            BYTES => varint(&mut message)?,
            // Groups: none of our messages has any.
            _ => return Err(WireError::Unreadable),
        };
        let length = usize::try_from(length).map_err(|_| WireError::Unreadable)?;
        let (field, rest) = message
            .split_at_checked(length)
            .ok_or(WireError::Unreadable)?;
        message = rest;
        visit(tag >> 3, (wire_type == BYTES).then_some(field))?;
    }
    Ok(())
}

fn varint(bytes: &mut &[u8]) -> Result<u64, WireError> {
    let mut value = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or(WireError::Unreadable)?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(WireError::Unreadable)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message as _;

    use super::*;
    use crate::wire::v1::agent_message::Kind;

    fn encoded(kind: Kind) -> Vec<u8> {
        v1::AgentMessage { kind: Some(kind) }.encode_to_vec()
    }

    fn tasks(count: usize) -> Kind {
        Kind::Flush(v1::Flush {
            tasks: vec![v1::Task::default(); count],
            ..Default::default()
        })
    }

    #[test]
    fn entries_of_every_kind_are_counted_before_they_are_decoded() {
        let strings = |count| {
            let strings = vec![String::new(); count];
            Kind::Dictionary(v1::Dictionary {
                strings,
                ..Default::default()
            })
        };
        let frames = |count| {
            let frames = vec![v1::Frame::default(); count];
            Kind::Dictionary(v1::Dictionary {
                frames,
                ..Default::default()
            })
        };
        let threads = |count| {
            let threads = vec![v1::ThreadStack::default(); count];
            Kind::ThreadDump(v1::ThreadDump {
                threads,
                ..Default::default()
            })
        };
        let makers: [&dyn Fn(usize) -> Kind; 4] = [&tasks, &strings, &frames, &threads];
        for of in makers {
            assert!(measure(&encoded(of(MESSAGE_ENTRIES_MAX))).is_ok());
            let bytes = encoded(of(MESSAGE_ENTRIES_MAX + 1));
            assert!(bytes.len() < crate::limits::MESSAGE_BYTES_MAX);
            let error = measure(&bytes).unwrap_err();
            assert_eq!(
                error.to_string(),
                "the number of a message's entries is 262145; at most 262144 is allowed"
            );
        }
        // A repeated kind adds to the first, as in prost.
        let half = encoded(tasks(MESSAGE_ENTRIES_MAX / 2 + 1));
        assert!(measure(&[&half[..], &half].concat()).is_err());
    }

    /// Two bytes of a label take 32 once decoded, one byte of a packed list eight.
    #[test]
    fn nested_entries_and_packed_numbers_count() {
        let many = MESSAGE_ENTRIES_MAX;
        let expected = "the number of a message's entries is 262145; at most 262144 is allowed";
        let labels = vec![v1::Label::default(); many];
        let tasks = vec![v1::Task {
            labels,
            ..Default::default()
        }];
        check(
            v1::Flush {
                tasks,
                ..Default::default()
            },
            expected,
        );
        let phases = vec![v1::Phase::default(); many];
        let tasks = vec![v1::Task {
            phases,
            ..Default::default()
        }];
        check(
            v1::Flush {
                tasks,
                ..Default::default()
            },
            expected,
        );
        let keys = vec![String::new(); many];
        let transfers = vec![v1::TransferEvent {
            keys,
            ..Default::default()
        }];
        check(
            v1::Flush {
                transfers,
                ..Default::default()
            },
            expected,
        );
        let counts = vec![1; many * 8];
        let totals = vec![v1::TaskTotals {
            counts,
            ..Default::default()
        }];
        check(
            v1::Flush {
                totals,
                ..Default::default()
            },
            &expected.replace("262145", "262146"),
        );
        let values = vec![1; many * 8];
        let resources = vec![v1::ResourceSample {
            values,
            ..Default::default()
        }];
        check(
            v1::Flush {
                resources,
                ..Default::default()
            },
            &expected.replace("262145", "262146"),
        );
    }

    fn check(flush: v1::Flush, expected: &str) {
        let bytes = encoded(Kind::Flush(flush));
        assert!(bytes.len() < crate::limits::MESSAGE_BYTES_MAX);
        assert_eq!(measure(&bytes).unwrap_err().to_string(), expected);
    }

    /// Memory of a flush's lists once decoded.
    fn decoded_bytes(flush: &v1::Flush) -> usize {
        let task_bytes = |task: &v1::Task| {
            let lists = task
                .labels
                .iter()
                .map(|label: &v1::Label| size_of::<v1::Label>() + label.value.len())
                .sum::<usize>()
                + size_of_val(&task.phases[..]);
            size_of::<v1::Task>() + task.key.len() + task.cause.len() + lists
        };
        flush.tasks.iter().map(task_bytes).sum::<usize>()
            + flush
                .totals
                .iter()
                .map(|sum: &v1::TaskTotals| {
                    size_of_val(sum)
                        + size_of_val(&sum.counts[..])
                        + size_of_val(&sum.bucket_gaps[..])
                })
                .sum::<usize>()
    }

    #[test]
    fn the_measure_is_at_least_what_decoding_allocates() {
        let label = v1::Label {
            key: 1,
            value: String::new(),
        };
        let labels = v1::Task {
            labels: vec![label; 1_000],
            ..Default::default()
        };
        let phases = v1::Task {
            phases: vec![v1::Phase::default(); 64],
            ..Default::default()
        };
        let key = v1::Task {
            key: "k".repeat(4_096),
            ..Default::default()
        };
        let counts = v1::TaskTotals {
            counts: vec![1; 1_000],
            ..Default::default()
        };
        for flush in [
            v1::Flush {
                tasks: vec![v1::Task::default(); 1_000],
                ..Default::default()
            },
            v1::Flush {
                tasks: vec![labels; 10],
                ..Default::default()
            },
            v1::Flush {
                tasks: vec![phases, key],
                ..Default::default()
            },
            v1::Flush {
                totals: vec![counts; 10],
                ..Default::default()
            },
        ] {
            let bytes = measure(&encoded(Kind::Flush(flush.clone()))).unwrap();
            assert!(
                bytes >= decoded_bytes(&flush),
                "{bytes} of {}",
                decoded_bytes(&flush)
            );
        }
    }

    #[test]
    fn bytes_that_are_not_a_message_are_rejected() {
        for bytes in [
            &[0x0a][..],
            &[0x0a, 5, 0],
            &[0x0b],
            &[0x80; 11],
            &[0x09, 1],
            &[0x1a, 1, 0x80],
        ] {
            assert_eq!(measure(bytes), Err(WireError::Unreadable), "{bytes:?}");
        }
    }

    proptest! {
        /// A message that prost decodes to many entries never passes: each entry takes at least two
        /// bytes, which were counted.
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let checked = measure(&bytes);
            if let Ok(v1::AgentMessage { kind: Some(_) }) = v1::AgentMessage::decode(&bytes[..]) {
                // Groups of unknown fields are the only input that prost accepts and we reject.
                let has_group = bytes.iter().any(|byte| byte & 7 == 3);
                prop_assert!(checked.is_ok() || has_group, "{:?}", checked);
            }
        }
    }
}
