//! Mutations that keep the structure of inputs: parts are exchanged and repeated, and protobuf messages
//! are changed field by field, so that lengths stay right. Half of all mutations are libFuzzer's own.

use libfuzzer_sys::fuzzer_mutate;

use crate::parts;

/// Shape of the inputs of a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Any bytes.
    Bytes,
    /// A byte of flags, then parts: some bytes, followed by a protobuf message.
    Messages {
        /// Bytes of a part before its message.
        head: usize,
    },
}

/// Deepest nesting at which bytes are still read as a message. Our messages are four deep.
const DEPTH_MAX: usize = 6;

/// Largest field number that is read as one.
const FIELD_MAX: u64 = 64;

/// Boundary values of integers.
const EDGES: [u64; 16] = [
    0,
    1,
    2,
    63,
    64,
    127,
    128,
    255,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    (1 << 63) - 1,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

/// See [`crate::target::mutate`].
pub fn mutate(shape: Shape, data: &mut [u8], size: usize, size_max: usize, seed: u32) -> usize {
    let mut random = Random(u64::from(seed) | 1 << 32);
    if let Shape::Messages { head } = shape
        && random.below(2) == 0
        && let Some(changed) = changed(&data[..size], head, &mut random)
        && changed.len() <= size_max
    {
        data[..changed.len()].copy_from_slice(&changed);
        return changed.len();
    }
    fuzzer_mutate(data, size, size_max)
}

/// The input with one to four changes; `None` if it has no part.
fn changed(input: &[u8], head: usize, random: &mut Random) -> Option<Vec<u8>> {
    let (flags, rest) = parts::flags(input);
    let mut parts: Vec<Vec<u8>> = parts::split(rest).into_iter().map(<[u8]>::to_vec).collect();
    for _ in 0..=random.below(4) {
        if parts.is_empty() {
            return None;
        }
        let at = random.below(parts.len());
        match random.below(10) {
            0 => {
                parts.remove(at);
            }
            1 => parts.insert(at, parts[at].clone()),
            2 => {
                let other = random.below(parts.len());
                parts.swap(at, other);
            }
            3 => parts.insert(at, Vec::new()),
            _ => {
                let donor = parts[random.below(parts.len())].clone();
                change_message(&mut parts[at], &donor, head, random);
            }
        }
    }
    let mut output = vec![flags];
    output.extend(parts::join(&parts));
    Some(output)
}

/// Changes one field of the message in a part, if it is a message.
fn change_message(part: &mut Vec<u8>, donor: &[u8], head: usize, random: &mut Random) {
    let Some(mut message) = part.get(head..).and_then(|message| decode(message, 0)) else {
        return;
    };
    let donor = donor
        .get(head..)
        .and_then(|message| decode(message, 0))
        .unwrap_or_default();
    let count = count(&message);
    if count == 0 {
        return;
    }
    let chosen = random.below(count);
    change_at(&mut message, &mut Some(chosen), &donor, random);
    part.truncate(head);
    encode(&message, part);
}

#[derive(Clone, Debug)]
struct Field {
    number: u64,
    value: Value,
}

#[derive(Clone, Debug)]
enum Value {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(Vec<u8>),
    Message(Vec<Field>),
}

/// The fields of bytes that are a message to their last one.
fn decode(mut bytes: &[u8], depth: usize) -> Option<Vec<Field>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let number = key >> 3;
        if number == 0 || number > FIELD_MAX {
            return None;
        }
        let value = match key & 7 {
            0 => Value::Varint(varint(&mut bytes)?),
            1 => {
                let (value, rest) = bytes.split_first_chunk()?;
                bytes = rest;
                Value::Fixed64(u64::from_le_bytes(*value))
            }
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                let (content, rest) = bytes.split_at_checked(length)?;
                bytes = rest;
                let is_nested = depth < DEPTH_MAX && !content.is_empty();
                match is_nested.then(|| decode(content, depth + 1)).flatten() {
                    Some(fields) => Value::Message(fields),
                    None => Value::Bytes(content.to_vec()),
                }
            }
            5 => {
                let (value, rest) = bytes.split_first_chunk()?;
                bytes = rest;
                Value::Fixed32(u32::from_le_bytes(*value))
            }
            _ => return None,
        };
        fields.push(Field { number, value });
    }
    Some(fields)
}

fn encode(fields: &[Field], to: &mut Vec<u8>) {
    for Field { number, value } in fields {
        let mut key = |wire_type: u64| put_varint(to, number << 3 | wire_type);
        match value {
            Value::Varint(value) => {
                key(0);
                put_varint(to, *value);
            }
            Value::Fixed64(value) => {
                key(1);
                to.extend(value.to_le_bytes());
            }
            Value::Bytes(content) => {
                key(2);
                put_varint(to, content.len() as u64);
                to.extend(content);
            }
            Value::Message(fields) => {
                key(2);
                let mut content = Vec::new();
                encode(fields, &mut content);
                put_varint(to, content.len() as u64);
                to.extend(content);
            }
            Value::Fixed32(value) => {
                key(5);
                to.extend(value.to_le_bytes());
            }
        }
    }
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn put_varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// Number of fields at any depth.
fn count(fields: &[Field]) -> usize {
    let nested = |field: &Field| match &field.value {
        Value::Message(fields) => count(fields),
        _ => 0,
    };
    fields.iter().map(|field| 1 + nested(field)).sum()
}

/// Changes the field with the number that is left, in the order of [`count`].
fn change_at(
    fields: &mut Vec<Field>,
    left: &mut Option<usize>,
    donor: &[Field],
    random: &mut Random,
) {
    let mut index = 0;
    while index < fields.len() {
        match *left {
            None => return,
            Some(0) => {
                *left = None;
                change(fields, index, donor, random);
                return;
            }
            Some(more) => *left = Some(more - 1),
        }
        if let Value::Message(nested) = &mut fields[index].value {
            change_at(nested, left, donor, random);
        }
        index += 1;
    }
}

fn change(fields: &mut Vec<Field>, at: usize, donor: &[Field], random: &mut Random) {
    match random.below(8) {
        0 => {
            fields.remove(at);
        }
        1 => {
            let copies = 1 << random.below(7);
            let copy = fields[at].clone();
            fields.splice(at..at, std::iter::repeat_n(copy, copies));
        }
        2 => {
            let other = random.below(fields.len());
            fields.swap(at, other);
        }
        3 if !donor.is_empty() => fields.insert(at, donor[random.below(donor.len())].clone()),
        4 => fields[at].number = 1 + random.next() % 16,
        _ => fields[at].value.change(random),
    }
}

impl Value {
    fn change(&mut self, random: &mut Random) {
        match self {
            Value::Varint(value) | Value::Fixed64(value) => *value = random.near(*value),
            Value::Fixed32(value) => *value = random.near(u64::from(*value)) as u32,
            Value::Bytes(bytes) => change_bytes(bytes, random),
            // As bytes: what looks like a message may be a text or packed numbers.
            Value::Message(fields) => {
                let mut bytes = Vec::new();
                encode(fields, &mut bytes);
                change_bytes(&mut bytes, random);
                *self = Value::Bytes(bytes);
            }
        }
    }
}

/// Changes a text or packed numbers.
fn change_bytes(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(bytes.len() + 1);
    match random.below(5) {
        0 => bytes.truncate(at),
        1 => {
            let length = 1 << random.below(10);
            let filler = random.next() as u8;
            bytes.splice(at..at, std::iter::repeat_n(filler, length));
        }
        2 => {
            let mut number = Vec::new();
            let value = random.near(1);
            put_varint(&mut number, value);
            bytes.splice(at..at, number);
        }
        _ => match bytes.get_mut(at) {
            Some(byte) => *byte = random.next() as u8,
            None => bytes.push(random.next() as u8),
        },
    }
}

/// A small generator (splitmix64): libFuzzer gives each mutation a seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `limit`, which is not 0.
    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// A number at an edge, or near `value`.
    fn near(&mut self, value: u64) -> u64 {
        match self.below(6) {
            0 | 1 => EDGES[self.below(EDGES.len())],
            2 => value.wrapping_add(1),
            3 => value.wrapping_sub(1),
            4 => value ^ 1 << self.below(64),
            _ => self.next() >> self.below(64),
        }
    }
}
