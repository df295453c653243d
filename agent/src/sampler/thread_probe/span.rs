//! The part of a thread's own stack that its handler may copy.

use super::*;

/// Samples outside a thread's known stack after which the stack is looked up again.
const SPAN_AFTER_SAMPLES: u32 = 100;

/// Looks up the bounds of the thread's stack, from a stack pointer within it. Returns whether the next
/// sample has more of the stack than this one.
pub(super) fn learn_span(thread: &mut Thread, sample: &Sample<'_>) -> bool {
    let before = thread.span;
    let sp = sample.sp();
    if thread.span_after == 0 {
        thread.span_after = SPAN_AFTER_SAMPLES;
        let own = own_span(sp, sample.thread_pointer, maps::mapping_of(sp));
        thread.span = own.map_or(before, |own| StackSpan {
            checked: before.checked,
            ..own
        });
    } else {
        thread.span_after -= 1;
    }
    let is_own = (thread.span.low..thread.span.end).contains(&sp);
    if !is_own && !before.checked {
        // Strict seccomp kills at the system call of a checked copy.
        thread.span.checked = process::has_strict_filter(thread.id) == Some(false);
    }
    thread.span != before
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
        return Some(StackSpan {
            low,
            end: mapping.end,
            ..StackSpan::default()
        });
    }
    (sp < thread_pointer && thread_pointer <= mapping.end).then_some(StackSpan {
        low,
        end: thread_pointer & !7,
        ..StackSpan::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_ends_at_the_threads_control_block() {
        let mapping = |main_stack| {
            Some(Mapping {
                low: 0x1000,
                end: 0x9000,
                main_stack,
            })
        };
        let span = |low, end| {
            Some(StackSpan {
                low,
                end,
                ..StackSpan::default()
            })
        };
        assert_eq!(
            own_span(0x4000, 0x8008, mapping(false)),
            span(0x1000, 0x8008)
        );
        assert_eq!(
            own_span(0x4000, 0xf000, mapping(false)),
            None,
            "a fiber's stack"
        );
        assert_eq!(
            own_span(0x4000, 0x3000, mapping(false)),
            None,
            "a control block below"
        );
        assert_eq!(
            own_span(0x4000, 0xf000, mapping(true)),
            span(0x1000, 0x9000)
        );
        assert_eq!(own_span(0x4000, 0x8008, None), None);
    }
}
