//! Counts the entries of an encoded message before memory is allocated for them.

use super::WireError;
use super::v1;
use crate::limits::MESSAGE_ENTRIES_MAX;

const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const BYTES: u64 = 2;
const FIXED_32: u64 = 5;

// Memory of the largest entries once decoded, without their texts.
const _: () = assert!(MESSAGE_ENTRIES_MAX * size_of::<v1::Task>() <= 64 << 20);
const _: () = assert!(size_of::<v1::Task>() >= size_of::<v1::Frame>());
const _: () = assert!(size_of::<v1::Task>() >= size_of::<v1::ThreadStack>());

/// Rejects an encoded `AgentMessage` with more than [`MESSAGE_ENTRIES_MAX`] entries. An entry is
/// anything one level below the message's kind: a string, frame, task, thread or label.
///
/// # Errors
/// [`WireError::TooLarge`], or [`WireError::Unreadable`] if the bytes are not a message.
pub fn check_entries(message: &[u8]) -> Result<(), WireError> {
    let mut entries = 0;
    fields(message, &mut |kind| {
        fields(kind, &mut |_| {
            entries += 1;
            super::check_size("the number of a message's entries", entries, MESSAGE_ENTRIES_MAX)
        })
    })
}

/// Calls `visit` with each length-delimited field: a string, a message or a packed list.
fn fields(
    mut message: &[u8],
    visit: &mut dyn FnMut(&[u8]) -> Result<(), WireError>,
) -> Result<(), WireError> {
    while !message.is_empty() {
        let wire_type = varint(&mut message)? & 7;
        let length = match wire_type {
            VARINT => {
                varint(&mut message)?;
                continue;
            }
            FIXED_64 => 8,
            FIXED_32 => 4,
            BYTES => varint(&mut message)?,
            // Groups: none of our messages has any.
            _ => return Err(WireError::Unreadable),
        };
        let length = usize::try_from(length).map_err(|_| WireError::Unreadable)?;
        let (field, rest) = message.split_at_checked(length).ok_or(WireError::Unreadable)?;
        message = rest;
        if wire_type == BYTES {
            visit(field)?;
        }
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
        Kind::Flush(v1::Flush { tasks: vec![v1::Task::default(); count], ..Default::default() })
    }

    #[test]
    fn entries_of_every_kind_are_counted_before_they_are_decoded() {
        let strings = |count| {
            let strings = vec![String::new(); count];
            Kind::Dictionary(v1::Dictionary { strings, ..Default::default() })
        };
        let frames = |count| {
            let frames = vec![v1::Frame::default(); count];
            Kind::Dictionary(v1::Dictionary { frames, ..Default::default() })
        };
        let threads = |count| {
            let threads = vec![v1::ThreadStack::default(); count];
            Kind::ThreadDump(v1::ThreadDump { threads, ..Default::default() })
        };
        let makers: [&dyn Fn(usize) -> Kind; 4] = [&tasks, &strings, &frames, &threads];
        for of in makers {
            assert_eq!(check_entries(&encoded(of(MESSAGE_ENTRIES_MAX))), Ok(()));
            let bytes = encoded(of(MESSAGE_ENTRIES_MAX + 1));
            assert!(bytes.len() < crate::limits::MESSAGE_BYTES_MAX);
            let error = check_entries(&bytes).unwrap_err();
            assert_eq!(
                error.to_string(),
                "the number of a message's entries is 262145; at most 262144 is allowed"
            );
        }
        // A repeated kind adds to the first, as in prost.
        let half = encoded(tasks(MESSAGE_ENTRIES_MAX / 2 + 1));
        assert!(check_entries(&[&half[..], &half].concat()).is_err());
    }

    #[test]
    fn bytes_that_are_not_a_message_are_rejected() {
        for bytes in
            [&[0x0a][..], &[0x0a, 5, 0], &[0x0b], &[0x80; 11], &[0x09, 1], &[0x1a, 1, 0x80]]
        {
            assert_eq!(check_entries(bytes), Err(WireError::Unreadable), "{bytes:?}");
        }
    }

    proptest! {
        /// A message that prost decodes to many entries never passes: each entry takes at least two
        /// bytes, which were counted.
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let checked = check_entries(&bytes);
            if let Ok(v1::AgentMessage { kind: Some(_) }) = v1::AgentMessage::decode(&bytes[..]) {
                // Groups of unknown fields are the only input that prost accepts and we reject.
                let has_group = bytes.iter().any(|byte| byte & 7 == 3);
                prop_assert!(checked.is_ok() || has_group, "{:?}", checked);
            }
        }
    }
}
