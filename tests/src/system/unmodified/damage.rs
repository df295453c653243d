//! Programs whose tables for unwinding are damaged or hostile: they and their agents live on.

use super::*;

/// Turns of damage for each section.
const TURNS: u64 = 6;

/// Positions in a file.
struct Section {
    start: usize,
    end: usize,
}

fn number(bytes: &[u8], at: usize, length: usize) -> usize {
    let digits = bytes[at..at + length].iter().rev();
    digits.fold(0, |sum, byte| sum << 8 | usize::from(*byte))
}

/// A section of an ELF file for 64-bit little-endian machines.
fn section(file: &[u8], name: &str) -> Section {
    let table = number(file, 40, 8);
    let header = |index: usize| table + index * 64;
    let names = number(file, header(number(file, 62, 2)) + 24, 8);
    let found = (0..number(file, 60, 2)).map(header).find(|header| {
        let text = &file[names + number(file, *header, 4)..];
        text.starts_with(name.as_bytes()) && text[name.len()] == 0
    });
    let header = found.unwrap_or_else(|| panic!("no {name}"));
    let start = number(file, header + 24, 8);
    Section {
        start,
        end: start + number(file, header + 32, 8),
    }
}

/// Damages a part of a section, each time in another way.
fn damage(file: &mut [u8], section: &Section, turn: u64) {
    let bytes = &mut file[section.start..section.end];
    match turn {
        0 => bytes.fill(0xff),
        1 => bytes.fill(0),
        2 => bytes[8..12].copy_from_slice(&u32::MAX.to_le_bytes()),
        _ => {
            let mut state = turn;
            for _ in 0..bytes.len() / 16 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let at = (state >> 33) as usize % bytes.len();
                bytes[at] ^= 1 << (state >> 60 & 7);
            }
        }
    }
}

/// Runs the damaged program, and the program with a damaged C library.
#[test]
fn damaged_tables_for_unwinding_cost_callers_only() {
    let collector = Collector::start();
    let folder = tempfile::tempdir().unwrap();
    let program = fs::read(&programs().c).unwrap();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let loaded = maps.lines().find(|line| line.ends_with("/libc.so.6"));
    let (_, library) = loaded.unwrap().split_once('/').unwrap();
    let library = fs::read(format!("/{library}")).unwrap();
    let alone = output(plain(&programs().c).arg("return"));
    let mut runs = 0;
    for (name, content) in [("program", &program), ("libc.so.6", &library)] {
        for part in [".eh_frame_hdr", ".eh_frame"] {
            for turn in 0..TURNS {
                let place = folder.path().join(format!("{name}{part}{turn}"));
                fs::create_dir(&place).unwrap();
                let mut damaged = content.clone();
                damage(&mut damaged, &section(content, part), turn);
                fs::copy(&programs().c, place.join("program")).unwrap();
                fs::write(place.join(name), damaged).unwrap();
                let mut command = under_emberline(&collector.url(), &[]);
                let libraries = format!("LD_LIBRARY_PATH={}", place.display());
                let done = output(
                    command
                        .args(["env", &libraries])
                        .arg(place.join("program"))
                        .arg("return"),
                );
                assert_eq!(visible(&done), visible(&alone), "{name} {part} {turn}");
                runs += 1;
            }
        }
    }
    let workers = ended_workers(&collector, "program", runs);
    assert_eq!(workers.len(), runs);
    for (worker, epoch) in &workers {
        assert_eq!(reason(epoch), "clean", "{worker}: {epoch}");
        let text = collapsed(&collector, worker);
        // The innermost function needs no tables.
        assert!(text.contains(";count "), "{worker}: {text}");
    }
}
