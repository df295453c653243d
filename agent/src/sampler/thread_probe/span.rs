//! The part of a thread's own stack that its handler may copy.

use super::*;

/// Samples outside a thread's known stack after which the stack is looked up again.
const SPAN_AFTER_SAMPLES: u32 = 100;

/// Looks up the bounds of the thread's stack, from a stack pointer within it.
pub(super) fn learn_span(thread: &mut Thread, sample: &Sample<'_>) {
    if thread.span_after > 0 {
        thread.span_after -= 1;
        return;
    }
    thread.span_after = SPAN_AFTER_SAMPLES;
    let mapping = maps::mapping_of(sample.sp());
    if let Some(span) = own_span(sample.sp(), sample.thread_pointer, mapping) {
        thread.span = span;
    }
}

/// The span of a thread's own stack that its handler may copy, from a stack pointer within it.
///
/// A mapping may extend past the stack's end: the kernel joins adjacent mappings, and the other
/// memory may be unmapped at any time. The C library puts the thread's control block at the upper
/// end of the stacks that it creates, so that is the bound; the main thread's stack is a mapping of
/// its own. Any other stack (of a fiber, for example) has no known end and is copied by checked
/// reads only.
fn own_span(sp: u64, thread_pointer: u64, mapping: Option<Mapping>) -> Option<StackSpan> {
    let mapping = mapping?;
    let low = mapping.low;
    if mapping.main_stack {
        return Some(StackSpan { low, end: mapping.end, deep: false });
    }
    (sp < thread_pointer && thread_pointer <= mapping.end).then_some(StackSpan {
        low,
        end: thread_pointer & !7,
        deep: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_ends_at_the_threads_control_block() {
        let mapping = |main_stack| Some(Mapping { low: 0x1000, end: 0x9000, main_stack });
        let span = |low, end| Some(StackSpan { low, end, deep: false });
        assert_eq!(own_span(0x4000, 0x8008, mapping(false)), span(0x1000, 0x8008));
        assert_eq!(own_span(0x4000, 0xf000, mapping(false)), None, "a fiber's stack");
        assert_eq!(own_span(0x4000, 0x3000, mapping(false)), None, "a control block below");
        assert_eq!(own_span(0x4000, 0xf000, mapping(true)), span(0x1000, 0x9000));
        assert_eq!(own_span(0x4000, 0x8008, None), None);
    }
}
