//! Records of the log in frames with valid checksums, replayed by a collector that starts.

use collector::serve::fuzzing::{Files, Subject};
use fuzz::Target;
use fuzz::mutation::Shape;
use fuzz::parts;

use crate::{check, now};

/// Flags: the rest is a file as it is; the records are in two files; query afterwards.
const RAW: u8 = 0x80;
const TWO_FILES: u8 = 1;
const QUERY: u8 = 0x0e;

/// Each part is the kind of a record, a byte, and the record.
pub(crate) const RECORDS: Target = Target {
    name: "records",
    shape: Shape::Messages { head: 1 },
    run,
    seeds,
};

fn run(input: &[u8]) {
    let (flags, rest) = parts::flags(input);
    let mut log = Files::new();
    if flags & RAW != 0 {
        log.insert(name(1), rest.to_vec().into());
    } else {
        let records = parts::split(rest);
        let middle = if flags & TWO_FILES == 0 {
            records.len()
        } else {
            records.len() / 2
        };
        let first = file(1, None, &records[..middle]);
        if flags & TWO_FILES != 0 {
            let previous = Some((1, first.len() as u64));
            log.insert(name(2), file(2, previous, &records[middle..]).into());
        }
        log.insert(name(1), first.into());
    }
    // A log of another format is rejected.
    let Ok(mut subject) = Subject::open(now(), &Files::new(), log) else {
        return;
    };
    if flags & QUERY == QUERY {
        check(&mut subject);
        let _ = subject.seal();
    }
}

fn name(number: u64) -> String {
    format!("{number:020}.wal")
}

/// A file of the log, as `docs/STORE.md` describes it.
fn file(number: u64, previous: Option<(u64, u64)>, records: &[&[u8]]) -> Vec<u8> {
    let (previous, length) = previous.unwrap_or_default();
    let mut file = b"EMBRWAL1".to_vec();
    file.extend(1u32.to_le_bytes());
    [number, previous, length]
        .iter()
        .for_each(|number| file.extend(number.to_le_bytes()));
    file.extend(crc32fast::hash(&file).to_le_bytes());
    for record in records.iter().filter(|record| !record.is_empty()) {
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(&(file.len() as u64).to_le_bytes());
        checksum.update(record);
        file.extend(MAGIC);
        file.extend((record.len() as u32).to_le_bytes());
        file.extend(checksum.finalize().to_le_bytes());
        file.extend(*record);
    }
    file
}

const MAGIC: [u8; 4] = [0xEB, 0xFF, 0xF7, 0xAE];
const HEADER_BYTES: usize = 40;
const HEAD_BYTES: usize = 12;

/// The records of a file of the log, each with its kind.
fn records_of(file: &[u8]) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    let mut rest = &file[HEADER_BYTES.min(file.len())..];
    while let Some((head, tail)) = rest.split_at_checked(HEAD_BYTES) {
        let length = head[4..8]
            .first_chunk()
            .map_or(0, |length| u32::from_le_bytes(*length));
        let Some((record, next)) = tail.split_at_checked(length as usize) else {
            break;
        };
        records.push(record.to_vec());
        rest = next;
    }
    records
}

fn seeds() -> Vec<(String, Vec<u8>)> {
    let golden = include_bytes!("../../../collector/store/src/wal/golden/00000000000000000001.wal");
    let store =
        include_bytes!("../../../collector/store/golden/store-1/wal/00000000000000000003.wal");
    let mut seeds = Vec::new();
    for (name, file) in [("golden", &golden[..]), ("store", &store[..])] {
        let records = parts::join(&records_of(file));
        for flags in [0, TWO_FILES, QUERY] {
            seeds.push((
                format!("{name}-{flags}"),
                [vec![flags], records.clone()].concat(),
            ));
        }
        seeds.push((format!("{name}-raw"), [&[RAW], file].concat()));
    }
    seeds
}
