//! Unwind tables, registers and a copy of a stack.

use agent::fuzzing::{self, Tables};
use fuzz::Target;
use fuzz::mutation::Shape;
use fuzz::parts;

/// Registers by their DWARF numbers.
const REGISTERS: usize = 17;
const STACK_POINTER: usize = 7;
const INSTRUCTION_POINTER: usize = 16;

/// Addresses: the module's start and end, the index, the frames, the stack.
const PLACES: usize = 5;

/// Five parts: registers, addresses, index, frames, stack.
pub(crate) const UNWIND: Target = Target {
    name: "unwind",
    shape: Shape::Bytes,
    run: |input| {
        let parts = parts::split(input);
        let part = |index: usize| parts.get(index).copied().unwrap_or_default();
        let registers: [u64; REGISTERS] = words(part(0));
        let [start, end, index_at, frames_at, stack_at]: [u64; PLACES] = words(part(1));
        // A loader maps every table inside of its module.
        let fits = |at: u64, bytes: &[u8]| {
            at.checked_add(bytes.len() as u64)
                .is_some_and(|stop| start <= at && stop <= end)
        };
        if !fits(index_at, part(2)) || !fits(frames_at, part(3)) {
            return;
        }
        let tables = Tables {
            start,
            end,
            index_at,
            index: part(2),
            frames_at,
            frames: part(3),
        };
        let stack: Vec<u64> = part(4)
            .chunks(8)
            .map(|chunk| words::<1>(chunk)[0])
            .collect();
        let _ = fuzzing::unwind(&tables, registers, stack_at, &stack);
    },
    seeds: || {
        let mut seeds: Vec<(String, Vec<u8>)> = fuzzing::with_vdso(|tables| {
            let index = tables.index.len();
            [0, 1, 3].map(|function| (format!("vdso-{function}"), seed(tables, index, function)))
        })
        .into_iter()
        .flatten()
        .collect();
        seeds.push(("expressions".into(), with_expressions()));
        seeds
    },
};

/// Numbers from bytes; missing bytes are 0.
fn words<const COUNT: usize>(bytes: &[u8]) -> [u64; COUNT] {
    std::array::from_fn(|index| {
        let mut word = [0; 8];
        let chunk = bytes.chunks(8).nth(index).unwrap_or_default();
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    })
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

const STACK_AT: u64 = 0x7fff_0000_0000;

/// A stack in a function of the kernel's own library.
fn seed(tables: &Tables<'_>, index_bytes: usize, function: usize) -> Vec<u8> {
    let index = &tables.index[..index_bytes.min(1 << 10)];
    let entry = index
        .get(12 + function * 8..)
        .and_then(|entry| entry.first_chunk());
    let offset = entry.map_or(0, |offset| i32::from_le_bytes(*offset));
    let code = tables.index_at.wrapping_add_signed(offset.into());
    // The frames end long before the segment does.
    let frames = &tables.frames[..tables.frames.len().min(2 << 10)];
    let mut registers = [STACK_AT + 64; REGISTERS];
    registers[STACK_POINTER] = STACK_AT;
    registers[INSTRUCTION_POINTER] = code + 4;
    let stack: Vec<u64> = (0..32).map(|slot| code + slot * 3).collect();
    let places = [
        tables.start,
        tables.end,
        tables.index_at,
        tables.frames_at,
        STACK_AT,
    ];
    parts::join(&[
        bytes_of(&registers),
        bytes_of(&places),
        index.to_vec(),
        frames.to_vec(),
        bytes_of(&stack),
    ])
}

/// One function whose frame, return address and frame pointer are given by expressions, as in the entries
/// of a procedure linkage table.
fn with_expressions() -> Vec<u8> {
    const START: u64 = 0x10_0000;
    const INDEX_AT: u64 = START + 0x100;
    const FRAMES_AT: u64 = START + 0x200;
    const CODE_AT: u64 = START + 0x1000;
    let entry = |body: &[u8]| [&(body.len() as u32).to_le_bytes(), body].concat();
    // Version 1, "zR", code 1, data -8, return address 16, pointers relative to themselves, 4 bytes.
    let mut common = vec![0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b];
    // The frame is rsp + 8, and the return address is stored right below it.
    common.extend([0x0c, 7, 8, 0x90, 1, 0, 0]);
    let common = entry(&common);
    let function_at = FRAMES_AT + common.len() as u64;
    let relative = |to: u64, from: u64| (to.wrapping_sub(from) as u32).to_le_bytes();
    let mut function = (common.len() as u32 + 4).to_le_bytes().to_vec();
    function.extend(relative(CODE_AT, function_at + 8));
    function.extend(0x100u32.to_le_bytes());
    function.push(0);
    // DW_CFA_def_cfa_expression: rsp + 8 + ((rip & 15) >= 11) << 3.
    function.extend([
        0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22,
    ]);
    // DW_CFA_expression of rbp, DW_CFA_val_expression of rbx.
    function.extend([0x10, 6, 2, 0x77, 0x70, 0x16, 3, 2, 0x73, 8, 0, 0, 0]);
    let frames = [common, entry(&function), vec![0; 4]].concat();
    let index = [
        vec![1, 0x1b, 3, 0x3b],
        relative(FRAMES_AT, INDEX_AT + 4).to_vec(),
        1u32.to_le_bytes().to_vec(),
        relative(CODE_AT, INDEX_AT).to_vec(),
        relative(function_at, INDEX_AT).to_vec(),
    ];
    let mut registers = [STACK_AT + 64; REGISTERS];
    registers[STACK_POINTER] = STACK_AT;
    registers[INSTRUCTION_POINTER] = CODE_AT + 4;
    let stack: Vec<u64> = (0..32).map(|slot| CODE_AT + slot).collect();
    parts::join(&[
        bytes_of(&registers),
        bytes_of(&[START, START + 0x10_0000, INDEX_AT, FRAMES_AT, STACK_AT]),
        index.concat(),
        frames,
        bytes_of(&stack),
    ])
}
