use std::cell::Cell;

use super::super::addresses::TaskLevels;
use super::*;
use crate::foreign::FrameWalker;
use crate::registry::NameId;

thread_local! {
    /// Calls of `identities`.
    static READS: Cell<usize> = const { Cell::new(0) };
    /// Whether all code is freed.
    static IS_FREED: Cell<bool> = const { Cell::new(false) };
}

/// An interpreter whose code n is the function `fn`, and whose library is `/interpreter`.
struct Fake;

impl FrameWalker for Fake {
    fn walk_own(&self, _: Range<u64>, _: &mut [ForeignFrame]) -> Walk {
        Walk::default()
    }

    fn walk_blocked(&self, thread_id: u32, frames: &mut [ForeignFrame]) -> Walk {
        frames[0] = frame(thread_id.into(), 150);
        Walk {
            frames: 1,
            is_complete: true,
        }
    }

    fn identities(&self, codes: &[u64], identities: &mut [u64]) {
        READS.set(READS.get() + 1);
        if IS_FREED.get() {
            identities.fill(0);
        } else {
            identities.copy_from_slice(codes);
        }
    }

    fn name(&self, frame: ForeignFrame) -> Option<ForeignName> {
        (frame.code < 90 && !IS_FREED.get()).then(|| ForeignName {
            function: format!("f{}", frame.code),
            file: "a.py".to_owned(),
            line: frame.at as u32,
        })
    }

    fn lock(&self, _: u32, futex: u64) -> Option<ForeignLock> {
        let holder = match futex {
            0x500 => None,
            0x501..=0x507 => Some(frame(futex - 0x500, 0)),
            _ => return None,
        };
        Some(ForeignLock {
            name: "lock",
            holder,
        })
    }

    fn is_interpreter(&self, module: &str) -> bool {
        module == "/interpreter"
    }
}

fn frame(code: u64, anchor: u64) -> ForeignFrame {
    ForeignFrame {
        code,
        at: 1,
        anchor,
    }
}

fn module(path: &str, start: u64) -> Module {
    Module {
        path: path.into(),
        build_id: "".into(),
        file: None,
        range: start..start + 0x100,
        base: start,
        tables: None,
    }
}

/// Code of a library, of the interpreter, of the C library and of a program.
const LIBRARY: u64 = 0x1000;
const LOOP: u64 = 0x2000;
const GLUE: u64 = 0x2080;
const C_LIBRARY: u64 = 0x3000;
const PROGRAM: u64 = 0x4000;

fn merger() -> ForeignFrames {
    let modules = [
        module("/library", LIBRARY),
        module("/interpreter", LOOP),
        module("/lib/libc.so.6", C_LIBRARY),
        module("/program", PROGRAM),
    ];
    ForeignFrames::new(Walker(&Fake), &modules)
}

/// A stack of native code, the innermost first, each with a hundred bytes of stack from 100 on.
fn native(addresses: &[u64], complete: bool) -> Stack {
    let mut stack = Stack::default();
    for (index, address) in addresses.iter().enumerate() {
        stack.push(*address, 100 * (index as u64 + 1));
    }
    stack.complete = complete;
    stack
}

fn text(tree: &AddressTrie, stack: &Stack) -> String {
    let mut names = Vec::new();
    if !stack.complete {
        names.push("[truncated]".to_owned());
    }
    for entry in stack.addresses.iter().rev() {
        names.push(match frame_of(*entry).map(|id| tree.frame(id)) {
            Some(AddressFrame::Foreign(name)) => name.function.clone(),
            _ => format!("{entry:x}"),
        });
    }
    names.join(";")
}

fn check(native_code: &[u64], complete: bool, frames: &[ForeignFrame], expected: &str) {
    let mut tree = AddressTrie::new(&[]);
    let mut stack = native(native_code, complete);
    let found = Found {
        frames,
        is_complete: true,
    };
    merger().merge(&mut tree, found, &mut stack);
    assert_eq!(text(&tree, &stack), expected);
    let levels = TaskLevels {
        first: AddressFrame::NoTask,
        phase: NameId::NONE,
    };
    assert_ne!(tree.node_of(&levels, &stack).index(), 0);
}

#[test]
fn frames_take_the_place_of_the_loop_that_runs_them() {
    let python = [frame(3, 210), frame(2, 290), frame(1, 450)];
    let code = [LIBRARY, LOOP, GLUE, LOOP, GLUE, C_LIBRARY];
    check(&code, true, &python, "f1;f2;f3;1000");
    check(&[GLUE, LOOP], true, &[frame(1, 250)], "f1;2080");
    check(&[LIBRARY, GLUE, LOOP], true, &[frame(1, 350)], "f1;1000");
    let in_c = [C_LIBRARY, GLUE, LOOP];
    check(&in_c, true, &[frame(1, 350)], "f1;2080;3000");
    check(&[LIBRARY, C_LIBRARY], true, &[], "3000;1000");
}

#[test]
fn frames_of_a_program_around_the_interpreter_stay() {
    let code = [LOOP, GLUE, LIBRARY, LOOP, GLUE, PROGRAM, C_LIBRARY];
    let python = [frame(2, 150), frame(1, 450)];
    check(&code, true, &python, "3000;4000;f1;1000;f2");
}

#[test]
fn frames_of_an_unknown_loop_follow_with_a_mark() {
    let python = [frame(2, 150), frame(1, 10_000)];
    check(&[LOOP, GLUE], false, &python, "[truncated];f1;f2");
    check(&[LIBRARY], true, &[frame(1, 0)], "[truncated];f1;1000");
    check(&[LOOP], true, &[frame(95, 150)], "[code is gone]");
}

#[test]
fn frames_without_anchors_take_turns() {
    let check = |code: &[u64], complete: bool, frames: usize, expected: &[usize]| {
        let frames = vec![frame(1, 0); frames];
        let found = Found {
            frames: &frames,
            is_complete: true,
        };
        let stack = native(code, complete);
        let mut turns = Turns::new(LOOP..GLUE, found, &stack).unwrap();
        let runs: Vec<_> = code.iter().map(|it| turns.frames_of(*it)).collect();
        assert_eq!(runs, expected);
    };
    let code = [LIBRARY, LOOP, GLUE, LOOP + 1, PROGRAM];
    check(&code, true, 2, &[0, 1, 0, 1, 0]);
    // The innermost loop has not begun its frame; a loop was not recognized; the root is missing.
    check(&code, true, 1, &[0, 0, 0, 1, 0]);
    check(&code, true, 4, &[0, 3, 0, 1, 0]);
    check(&code, false, 4, &[0, 1, 0, 1, 0]);
    let stack = native(&code, true);
    assert!(Turns::new(0..0, Found::default(), &stack).is_none());
}

#[test]
fn code_is_named_again_when_its_address_has_other_code() {
    let mut tree = AddressTrie::new(&[]);
    let mut merger = merger();
    let first = merger.frame_id(&mut tree, frame(5, 0)).unwrap();
    assert_eq!(merger.frame_id(&mut tree, frame(5, 0)).unwrap(), first);
    let key = (5, 1);
    let stale = Known {
        identity: 4,
        frame: FrameId(77),
    };
    assert!(merger.known.insert(key, stale));
    assert_eq!(merger.frame_id(&mut tree, frame(5, 0)).unwrap(), first);
    assert_eq!(merger.known.get(&key).unwrap().frame, first);
}

#[test]
fn code_that_was_freed_keeps_its_name() {
    let mut tree = AddressTrie::new(&[]);
    let mut merger = merger();
    let mut name_of = |code, is_freed| {
        IS_FREED.set(is_freed);
        merger.begin_tick();
        let first = merger.frame_id(&mut tree, frame(code, 0)).unwrap();
        let AddressFrame::Foreign(name) = tree.frame(first) else {
            panic!("a function");
        };
        name.function.clone()
    };
    assert_eq!(name_of(5, false), "f5");
    assert_eq!(name_of(5, true), "f5");
    assert_eq!(name_of(6, true), "[code is gone]");
    assert_eq!(name_of(6, false), "f6");
    IS_FREED.set(false);
}

#[test]
fn made_code_between_frames_of_the_interpreter_is_hidden() {
    const MADE: u64 = 0x9000;
    let python = [frame(2, 150), frame(1, 450)];
    let code = [LOOP, MADE, GLUE, GLUE, LOOP, MADE, GLUE];
    check(&code, true, &python, "f1;f2");
    // It calls a library, or a library calls it.
    let code = [LIBRARY, MADE, GLUE, GLUE, LOOP];
    check(&code, true, &[frame(1, 450)], "f1;9000;1000");
    let code = [GLUE, MADE, LIBRARY, GLUE, LOOP];
    check(&code, true, &[frame(1, 450)], "f1;1000;9000;2080");
}

#[test]
fn an_address_is_no_mark_whatever_its_bits() {
    let tree = AddressTrie::new(&[]);
    let stack = native(&[FOREIGN | 0x76c2_1dff, LIBRARY], true);
    assert_eq!(text(&tree, &stack), "1000;76c21dff");
}

#[test]
fn code_is_checked_once_a_tick_and_that_of_a_stack_together() {
    let mut tree = AddressTrie::new(&[]);
    let mut merger = merger();
    let frames: Vec<_> = (0..150).map(|code| frame(code % 70, 150)).collect();
    let mut merge = |frames| {
        let before = READS.get();
        let found = Found {
            frames,
            is_complete: true,
        };
        merger.merge(&mut tree, found, &mut native(&[LOOP], true));
        merger.begin_tick();
        READS.get() - before
    };
    assert_eq!(merge(&frames[..40]), 1);
    assert_eq!(merge(&frames[..40]), 1, "other code may be there now");
    assert_eq!(merge(&frames), 1 + 6, "those beyond 64 one by one");
}

#[test]
fn a_blocked_thread_is_merged_as_it_was_walked() {
    let mut tree = AddressTrie::new(&[]);
    let mut merger = merger();
    for thread in [7, 8] {
        merger.walk_blocked(thread, None);
        let mut stack = native(&[LOOP, C_LIBRARY], true);
        assert!(!merger.merge_blocked(&mut tree, &mut stack));
        assert_eq!(text(&tree, &stack), format!("f{thread}"));
    }
}

#[test]
fn a_wait_for_the_interpreters_lock_has_a_mark() {
    let check = |code: &[u64], futex: u64, expected: &str| {
        let mut tree = AddressTrie::new(&[]);
        let mut merger = merger();
        merger.walk_blocked(9, Some(futex));
        let mut stack = native(code, true);
        merger.blocked[0].anchor = 100 * code.len() as u64 + 50;
        let is_wait = merger.merge_blocked(&mut tree, &mut stack);
        assert_eq!(is_wait, expected.contains("[waiting"));
        assert_eq!(text(&tree, &stack), expected);
    };
    check(&[C_LIBRARY, GLUE, LOOP], 0x500, "f9;[waiting for the lock]");
    check(&[C_LIBRARY, GLUE, LOOP], 0x508, "f9;2080;3000");
    let in_library = [C_LIBRARY, GLUE, LIBRARY, LOOP];
    check(&in_library, 0x500, "f9;1000;[waiting for the lock]");
}

#[test]
fn a_wait_for_the_interpreters_lock_names_the_function_that_holds_it() {
    let mut tree = AddressTrie::new(&[]);
    let mut merger = merger();
    for (futex, holder) in [(0x503, "f3"), (0x504, "f4"), (0x503, "f3")] {
        merger.walk_blocked(9, Some(futex));
        merger.blocked[0].anchor = 350;
        let mut stack = native(&[C_LIBRARY, GLUE, LOOP], true);
        assert!(merger.merge_blocked(&mut tree, &mut stack));
        let expected = format!("f9;[waiting for the lock];[lock held by {holder}]");
        assert_eq!(text(&tree, &stack), expected);
    }
    // The function itself has another name, with its line.
    let own = merger.frame_id(&mut tree, frame(3, 0)).unwrap();
    let AddressFrame::Foreign(name) = tree.frame(own) else {
        panic!("a function");
    };
    assert_eq!((&name.function[..], name.line), ("f3", 1));
    // Other code has got the address of what held it.
    let stale = Known {
        identity: 99,
        frame: FrameId(77),
    };
    merger.known.insert((3, AS_HOLDER), stale);
    let mark = merger.holder_mark(&mut tree, "lock", frame(3, 0)).unwrap();
    assert_ne!(mark, FrameId(77));
}
