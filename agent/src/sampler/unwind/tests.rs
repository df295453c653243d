use super::*;

#[test]
fn a_function_is_found_by_an_address_inside_it() {
    let unwinder = Unwinder::new();
    let start = function_of as *const () as u64;
    let function = function_of(unwinder.modules(), start + 5).unwrap();
    assert_eq!(function.start, start);
    assert!(
        function.end > start + 5 && function.end < start + 10_000,
        "{function:?}"
    );
    assert_eq!(function_of(unwinder.modules(), 16), None);
}

#[test]
fn a_stack_pointer_at_the_end_of_all_addresses_has_its_innermost_frame() {
    let mut unwinder = Unwinder::new();
    let mut stack = Stack::default();
    let registers = Registers::of_caller(0x1000, u64::MAX - 20, None);
    unwinder.unwind(registers, |_| Ok(7), &mut stack);
    assert_eq!(
        (stack.addresses.as_slice(), stack.complete),
        ([0x1000].as_slice(), false)
    );
}

/// Each word of the stack is a return address that leads nowhere, so each of 512 attempts would take 512 steps.
/// On aarch64 the frame pointer, which such a word is not, ends each attempt.
#[test]
#[cfg(target_arch = "x86_64")]
fn a_scan_ends_after_its_steps() {
    let mut unwinder = Unwinder::new();
    let mut word = None;
    backtrace::trace(|frame| {
        let address = frame.ip().addr() as u64;
        word = unwinder.caller_at(address).map(|_| address);
        word.is_none()
    });
    let word = word.expect("a caller of this test");
    let modules = unwinder.modules().clone();
    let mut addresses = modules[0].range.clone();
    let undescribed = addresses.find(|at| function_of(&modules, *at).is_none());
    let pc = undescribed.expect("a header, or assembly");
    let mut reads = 0;
    let mut stack = Stack::default();
    unwinder.unwind(
        Registers::of_caller(pc, 0x7000_0000, None),
        |_| {
            reads += 1;
            Ok(word)
        },
        &mut stack,
    );
    assert_eq!(unwinder.steps_left, 0);
    assert!(reads < 4 * STEPS_MAX, "{reads} reads");
    assert_eq!(
        (stack.addresses.as_slice(), stack.complete),
        ([pc].as_slice(), false)
    );
}

/// A stack of this thread below which words are laid over the memory.
struct Overlay {
    /// The return address of the innermost frame, where its stack begins, and its frame pointer if it has one.
    pc: u64,
    sp: u64,
    fp: u64,
    words: Vec<(u64, u64)>,
}

impl Overlay {
    /// The stack of a caller of this function.
    fn here() -> Overlay {
        let mut found = Vec::new();
        backtrace::trace(|frame| {
            found.push((frame.ip().addr() as u64, frame.sp().addr() as u64));
            found.len() < 6
        });
        let mut unwinder = Unwinder::new();
        let mut stack = Stack::default();
        let leads_to_root = |(pc, sp): &(u64, u64)| {
            let registers = Registers::of_caller(*pc - 1, *sp, None);
            unwinder.unwind(registers, read_word, &mut stack);
            stack.complete && stack.addresses.len() > 2
        };
        let (pc, sp) = found.into_iter().rev().find(leads_to_root).unwrap();
        let distance = unwinder.frame_pointer_distance(pc - 1);
        Overlay {
            pc,
            sp,
            fp: distance.map_or(UNKNOWN, |distance| sp + distance),
            words: Vec::new(),
        }
    }

    fn read(&self, at: u64) -> Result<u64, ()> {
        let laid = self.words.iter().find(|(address, _)| *address == at);
        laid.map_or_else(|| read_word(at), |(_, word)| Ok(*word))
    }
}

fn read_word(at: u64) -> Result<u64, ()> {
    let mut word = [0; 8];
    let read = Memory::Own.read(at, &mut word);
    (read == word.len())
        .then(|| u64::from_le_bytes(word))
        .ok_or(())
}

/// Two functions of a runtime with frame pointers, and between them and the stack's pointer an old return address.
#[test]
fn code_of_a_runtime_is_left_by_its_frame_pointer_or_not_at_all() {
    #[cfg(target_arch = "x86_64")]
    let code = [0x90, 0x90, 0xe8, 0, 0, 0, 0, 0x90];
    #[cfg(target_arch = "aarch64")]
    let code = [0, 0, 0, 0x94, 0, 0, 0, 0x94];
    let code: Box<[u8; 8]> = Box::new(code);
    let start = code.as_ptr().addr() as u64;
    let after_call = start + if cfg!(target_arch = "x86_64") { 7 } else { 8 };
    let mut stack_of_test = Overlay::here();
    let Overlay { pc, sp, fp, .. } = stack_of_test;
    let outer = sp - 16;
    let inner = outer - 32;
    stack_of_test.words = vec![
        (outer, fp),
        (outer + 8, pc),
        (inner, outer),
        (inner + 8, after_call),
        (inner - 32, pc),
    ];
    let mut unwinder = Unwinder::new();
    let mut stack = Stack::default();
    let mut check = |fp: u64, complete: bool, expected: &[u64]| {
        let registers = Registers::of_caller(start, inner - 32, Some(fp));
        unwinder.unwind(registers, |at| stack_of_test.read(at), &mut stack);
        let innermost = &stack.addresses[..expected.len().min(stack.addresses.len())];
        assert_eq!(
            (innermost, stack.complete),
            (expected, complete),
            "{stack:x?}"
        );
        assert_eq!(
            stack.addresses.len() > expected.len(),
            complete,
            "{stack:x?}"
        );
    };
    check(inner, true, &[start, after_call - 1, pc - 1]);
    // The register is used for something else.
    for other in [0, UNKNOWN, inner + 3, inner - 8, u64::MAX - 7] {
        check(other, false, &[start]);
    }
}

/// A return address into Java's interpreter follows no call.
#[test]
fn frames_of_java_are_followed_only_if_they_keep_the_frame_pointer() {
    let interpreter: Box<[u8; 16]> = Box::new([0; 16]);
    let start = interpreter.as_ptr().addr() as u64;
    let returns_to = start + 8;
    let mut stack_of_test = Overlay::here();
    let Overlay { pc, sp, fp, .. } = stack_of_test;
    let outer = sp - 16;
    let inner = outer - 32;
    stack_of_test.words = vec![
        (outer, fp),
        (outer + 8, pc),
        (inner, outer),
        (inner + 8, returns_to),
    ];
    let mut stack = Stack::default();
    let mut check = |made_code: MadeCode, fp: u64, expected: &[u64]| {
        let mut unwinder = Unwinder::new();
        unwinder.made_code = made_code;
        let registers = Registers::of_caller(start, inner - 8, Some(fp));
        unwinder.unwind(registers, |at| stack_of_test.read(at), &mut stack);
        let innermost = &stack.addresses[..expected.len().min(stack.addresses.len())];
        assert_eq!(innermost, expected, "{made_code:?} {stack:x?}");
        let leads_to_root = expected.len() > 1;
        assert_eq!(stack.complete, leads_to_root, "{made_code:?} {stack:x?}");
    };
    let whole = [start, returns_to - 1, pc - 1];
    check(MadeCode::JavaWithFramePointers, inner, &whole);
    // Some outer frame: the call that it leads to is one, but the frames in between would be missing.
    check(MadeCode::Java, outer, &[start]);
    check(MadeCode::Unknown, outer, &[start, pc - 1]);
    check(MadeCode::Unknown, inner, &[start]);
}

/// As CPython's trampolines for `perf`: `sub rsp, 8; call rcx; add rsp, 8; ret`.
#[test]
#[cfg(target_arch = "x86_64")]
fn code_that_returns_after_its_call_needs_no_frame_pointer() {
    let code: Box<[u8; 12]> = Box::new([
        0x48, 0x83, 0xec, 8, 0x90, 0xff, 0xd1, 0x48, 0x83, 0xc4, 8, 0xc3,
    ]);
    let start = code.as_ptr().addr() as u64;
    let after_call = start + 7;
    let mut stack_of_test = Overlay::here();
    let Overlay { pc, sp, .. } = stack_of_test;
    let inner = sp - 32;
    stack_of_test.words = vec![(inner, UNKNOWN), (inner + 8, after_call), (sp - 8, pc)];
    let mut unwinder = Unwinder::new();
    let mut stack = Stack::default();
    let registers = Registers::of_caller(start, inner - 8, Some(inner));
    unwinder.unwind(registers, |at| stack_of_test.read(at), &mut stack);
    assert!(stack.complete, "{stack:x?}");
    assert_eq!(stack.addresses[..3], [start, after_call - 1, pc - 1]);
}

#[test]
fn an_unreadable_stack_has_its_innermost_frame() {
    let mut unwinder = Unwinder::new();
    let mut stack = Stack::default();
    let pc = function_of as *const () as u64;
    let registers = Registers::of_caller(pc, 0x1000, None);
    unwinder.unwind(registers, |_| Err(()), &mut stack);
    assert_eq!(
        (stack.addresses.as_slice(), stack.complete),
        ([pc].as_slice(), false)
    );
}
