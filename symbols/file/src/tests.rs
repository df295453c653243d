//! Symbol files of a small table, with damage.

use std::sync::OnceLock;

use expect_test::expect;
use profiler_core::Frame;
use proptest::prelude::*;

use super::builder::{Builder, DEPTH_MAX, FrameRow};
use super::*;

fn frame(function: &str, line: u32) -> Frame<String> {
    Frame::function(function, "/w/a.rs", line).map(str::to_owned)
}

fn facts() -> Facts {
    Facts {
        build_id: "0123456789abcdef".to_owned(),
        detail: Detail::Lines,
        source_bytes: 7,
        ..Facts::default()
    }
}

fn file() -> Vec<u8> {
    static FILE: OnceLock<Vec<u8>> = OnceLock::new();
    FILE.get_or_init(new_file).clone()
}

/// `a` from 0x1000, `b` inlined into it from 0x1010, nothing from 0x1020, then many of each.
fn new_file() -> Vec<u8> {
    let mut builder = Builder::default();
    let a = builder.intern_chain(&[frame("a", 1)]).unwrap();
    let b = builder
        .intern_chain(&[frame("a", 2), frame("b", 9)])
        .unwrap();
    for (start, innermost) in [(0x1020, 0), (0x1010, b), (0x1018, b), (0x1000, a)] {
        builder.add_range(start, innermost).unwrap();
    }
    for number in 0..40_000 {
        let function = frame(&format!("function_{number}"), number);
        let innermost = builder.intern_chain(&[function]).unwrap();
        builder.add_range(0x2000 + 4 * number, innermost).unwrap();
    }
    let mut file = Vec::new();
    builder.write(facts(), &mut file).unwrap();
    file
}

/// The functions at an address, as text.
fn at(file: &SymbolFile<Vec<u8>>, address: u64) -> String {
    let found = file.lookup([address]).unwrap();
    let names = found[&address].iter().map(|frame| {
        let inlined = if frame.inlined { "+ " } else { "" };
        format!("{inlined}{} {}:{}", frame.function, frame.file, frame.line)
    });
    names.collect::<Vec<_>>().join(" ")
}

#[test]
fn an_address_has_the_functions_of_its_range() {
    let file = SymbolFile::open(file()).unwrap();
    file.verify().unwrap();
    // Two neighbors with the same frames are one range.
    assert_eq!((file.facts().ranges, file.facts().frames), (40_003, 40_003));
    assert_eq!(at(&file, 0xfff), "");
    assert_eq!(at(&file, 0x1000), "a /w/a.rs:1");
    assert_eq!(at(&file, 0x101f), "a /w/a.rs:2 + b /w/a.rs:9");
    assert_eq!(at(&file, 0x1020), "");
    assert_eq!(at(&file, 0x2003), "function_0 /w/a.rs:0");
    assert_eq!(
        at(&file, 0x2000 + 4 * 39_999),
        "function_39999 /w/a.rs:39999"
    );
    assert_eq!(at(&file, 1 << 33), "");
}

#[test]
fn a_lookup_of_many_addresses_finds_what_single_ones_find() {
    let file = SymbolFile::open(file()).unwrap();
    let addresses: Vec<u64> = (0xff0..0x2100).chain(0x10_000..0x10_400).collect();
    let together = file.lookup(addresses.clone()).unwrap();
    assert_eq!(together.len(), addresses.len());
    for address in addresses.into_iter().step_by(37) {
        assert_eq!(
            together[&address],
            file.lookup([address]).unwrap()[&address],
            "{address:#x}"
        );
    }
}

#[test]
fn what_is_wrong_with_a_file_is_said() {
    let good = file();
    let cut = good[..good.len() - 1].to_vec();
    let mut damaged = good.clone();
    damaged[30] ^= 1;
    let mut newer = good.clone();
    let trailer = newer.len() - 128;
    newer[trailer] = 9;
    let crc = crc32fast::hash(&newer[trailer..trailer + 116]);
    newer[trailer + 116..trailer + 120].copy_from_slice(&crc.to_le_bytes());
    let errors = [
        error_of(b"\x7fELF".repeat(99)),
        error_of(cut),
        error_of(damaged),
        error_of(newer),
    ];
    expect![[r#"
        it is not a symbol file; `emberline symbols upload` makes one from an ELF file
        it is truncated: its last bytes are missing
        its starts are damaged: the checksum is wrong
        its names are of version 9, expected 1; make it again with this version of emberline
    "#]]
    .assert_eq(&(errors.join("\n") + "\n"));
}

fn error_of(bytes: Vec<u8>) -> String {
    match SymbolFile::open(bytes) {
        Ok(file) => file.verify().unwrap_err().to_string(),
        Err(error) => error.to_string(),
    }
}

/// All checksums are right.
#[test]
fn tables_that_contradict_each_other_are_rejected() {
    let row = FrameRow {
        caller: 0,
        function: 0,
        file: 0,
        line: 1,
    };
    let frames = "its frames contradict the rest of the file";
    assert_eq!(
        error(&[FrameRow { caller: 1, ..row }], 1),
        frames,
        "its own caller"
    );
    assert_eq!(
        error(&[row, FrameRow { caller: 9, ..row }], 2),
        frames,
        "an unknown caller"
    );
    assert_eq!(
        error(&[FrameRow { function: 1, ..row }], 1),
        frames,
        "an unknown text"
    );
    assert_eq!(
        error(&[row], 2),
        "its innermost frames contradict the rest of the file"
    );
    let deep: Vec<FrameRow> = (0..=DEPTH_MAX as u32)
        .map(|caller| FrameRow { caller, ..row })
        .collect();
    assert_eq!(error(&deep, deep.len() as u32), frames, "too many callers");
}

fn error(rows: &[FrameRow], innermost: u32) -> String {
    let mut builder = Builder::default();
    builder.intern_text("a").unwrap();
    for row in rows {
        builder.intern(*row).unwrap();
    }
    builder.add_range(0x1000, innermost).unwrap();
    let mut file = Vec::new();
    builder.write(facts(), &mut file).unwrap();
    let file = SymbolFile::open(file).unwrap();
    // Without the check, a lookup ends too.
    let _ = file.lookup([0x1000]);
    file.verify().unwrap_err().to_string()
}

/// An ELF file that has only one section, with this header and content.
fn elf_with(name: &str, flags: u64, content: &[u8]) -> Vec<u8> {
    let note = [&[4, 0, 0, 0, 8, 0, 0, 0, 3, 0, 0, 0][..], b"GNU\0", &[7; 8]].concat();
    let names = [b"\0.note\0", name.as_bytes(), b"\0.names\0"].concat();
    let mut elf = vec![0; 64];
    elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
    let mut table = vec![0; 64];
    let mut add = |elf: &mut Vec<u8>, name: u32, kind: u32, flags: u64, content: &[u8]| {
        let mut header = vec![0; 64];
        header[..4].copy_from_slice(&name.to_le_bytes());
        header[4..8].copy_from_slice(&kind.to_le_bytes());
        header[8..16].copy_from_slice(&flags.to_le_bytes());
        header[24..32].copy_from_slice(&(elf.len() as u64).to_le_bytes());
        header[32..40].copy_from_slice(&(content.len() as u64).to_le_bytes());
        elf.extend_from_slice(content);
        table.extend(header);
    };
    add(&mut elf, 1, 7, 0, &note);
    add(&mut elf, 7, 1, flags, content);
    add(&mut elf, 8 + name.len() as u32, 3, 0, &names);
    let at = (elf.len() as u64).to_le_bytes();
    elf[40..48].copy_from_slice(&at);
    elf[58..64].copy_from_slice(&[64, 0, 4, 0, 3, 0]);
    elf.extend(table);
    elf
}

fn reduce_error(elf: Vec<u8>) -> String {
    reduce(&elf, &mut Vec::new()).unwrap_err().to_string()
}

#[test]
fn a_bomb_is_not_decompressed() {
    let header =
        |bytes: u64| [&[1, 0, 0, 0, 0, 0, 0, 0][..], &bytes.to_le_bytes(), &[0; 8]].concat();
    let bomb = [header(1 << 40), vec![0; 1_000]].concat();
    let gnu = [
        b"ZLIB".to_vec(),
        (1_u64 << 40).to_be_bytes().to_vec(),
        vec![0; 1_000],
    ]
    .concat();
    let damaged = [header(10_000), vec![9; 1_000]].concat();
    let unknown = [&[7, 0, 0, 0][..], &header(9)[4..], &[0; 50]].concat();
    let errors = [
        reduce_error(elf_with(".debug_info", 0x800, &bomb)),
        reduce_error(elf_with(".zdebug_info", 0, &gnu)),
        reduce_error(elf_with(".debug_info", 0x800, &damaged)),
        reduce_error(elf_with(".debug_info", 0x800, &unknown)),
        reduce_error(elf_with(".debug_info", 0x800, &[1])),
        reduce_error(elf_with(".text", 0, &[1])),
        reduce_error(b"#!/bin/sh\n".to_vec()),
    ];
    expect![[r#"
        section .debug_info claims 1099511627776 bytes in 1024; at most 100 times as many are decompressed
        section .zdebug_info claims 1099511627776 bytes in 1012; at most 100 times as many are decompressed
        section .debug_info cannot be decompressed: its data is damaged, or not as long as its header says
        section .debug_info cannot be decompressed: only zlib and zstd are supported
        section .debug_info cannot be decompressed: its header is missing
        it has no symbols: neither debug information nor a table of symbols
        it is not an ELF file for 64-bit little-endian processors
    "#]]
    .assert_eq(&(errors.join("\n") + "\n"));
}

#[test]
fn a_truncated_elf_file_names_the_section_that_is_cut() {
    let elf = elf_with(".debug_info", 0, &[1; 10_000]);
    let table = elf.len() - 256;
    // The table of sections comes first here, as some linkers put it.
    let mut moved = [&elf[..64], &elf[table..], &elf[64..table]].concat();
    moved[40..48].copy_from_slice(&64_u64.to_le_bytes());
    for section in 1..4 {
        let at = 64 + section * 64 + 24;
        let offset = u64::from_le_bytes(*moved[at..].first_chunk().unwrap()) + 256;
        moved[at..at + 8].copy_from_slice(&offset.to_le_bytes());
    }
    moved.truncate(5_000);
    let error = reduce_error(moved);
    assert!(error.contains("it is truncated: section ") && error.contains("the file at byte 5000"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever is damaged: an error or an answer, and never a wrong one without checksums.
    #[test]
    fn a_damaged_symbol_file_is_an_error(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        kept in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let good = file();
        let mut bytes = good.clone();
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(kept) = kept {
            bytes.truncate(kept.index(bytes.len()));
        }
        let is_whole = bytes == good;
        let verified = SymbolFile::open(bytes).and_then(|file| {
            let _ = file.lookup((0x1000..0x40_000).step_by(97));
            file.verify()
        });
        prop_assert_eq!(verified.is_ok(), is_whole);
    }
}
