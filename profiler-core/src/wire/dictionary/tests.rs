use proptest::prelude::*;

use super::*;

/// Strings, frames and nodes over few names; each node picks a parent among the earlier ones.
fn tables() -> impl Strategy<Value = (SymbolTable, CallTrie)> {
    prop::collection::vec((any::<prop::sample::Index>(), 0..20u32), 0..80).prop_map(|rows| {
        let mut symbols = SymbolTable::new();
        let mut trie = CallTrie::new(1_000);
        for (parent, name) in rows {
            let parent = NodeId(u32::try_from(parent.index(trie.node_count() as usize)).unwrap());
            let name = format!("f{name}");
            let frame = symbols.intern(&Frame::function(&name, "x.rs", name.len() as u32));
            trie.insert(parent, frame).unwrap();
        }
        (symbols, trie)
    })
}

/// Sends every entry after `held` in messages of `bytes_max`.
fn send(
    from: &(SymbolTable, CallTrie),
    held: &mut Marks,
    bytes_max: usize,
    to: &mut (Translation, SymbolTable, CallTrie),
) {
    while let Some(message) = dictionary_since(&from.0, &from.1, held, bytes_max) {
        to.0.apply(&message, &mut to.1, &mut to.2).unwrap();
    }
}

fn receiver(nodes_max: usize) -> (Translation, SymbolTable, CallTrie) {
    (
        Translation::default(),
        SymbolTable::new(),
        CallTrie::new(nodes_max),
    )
}

fn labels(symbols: &SymbolTable, trie: &CallTrie, node: NodeId) -> Vec<String> {
    trie.path(node)
        .map(|frame| symbols.frame(frame).label())
        .collect()
}

proptest! {
    #[test]
    fn tables_that_the_receiver_knows_need_no_dictionary_and_give_the_same(
        from in tables(), others in tables(), entries_max in 1..60usize, knows_all in any::<bool>()
    ) {
        let mut to = receiver(1_000);
        send(&others, &mut Marks::default(), 10_000, &mut to);
        if knows_all {
            to.0 = Translation::default();
            send(&from, &mut Marks::default(), 10_000, &mut to);
        }
        to.0 = Translation::default();
        let sender = Tables { symbols: &from.0, trie: &from.1 };
        let mut count = entries_max;
        while count == entries_max {
            let receiver = Tables { symbols: &to.1, trie: &to.2 };
            count = to.0.apply_known_tables(sender, receiver, entries_max);
        }
        prop_assert!(!knows_all || to.0.marks() == Marks::of(&from.0, &from.1));
        let mut held = to.0.marks();
        send(&from, &mut held, 10_000, &mut to);
        let expected = {
            let mut again = (Translation::default(), to.1.clone(), to.2.clone());
            send(&from, &mut Marks::default(), 10_000, &mut again);
            again
        };
        prop_assert_eq!(to.0.marks(), expected.0.marks());
        for id in 0..from.1.node_count() {
            prop_assert_eq!(to.0.node(NodeId(id)), expected.0.node(NodeId(id)));
        }
    }

    #[test]
    fn every_node_keeps_its_stack_however_the_tables_are_cut(
        from in tables(), bytes_max in 1..200usize, again in any::<bool>()
    ) {
        let mut to = receiver(1_000);
        send(&from, &mut Marks::default(), bytes_max, &mut to);
        if again {
            // A dictionary sent twice changes nothing.
            send(&from, &mut Marks::default(), 10_000, &mut to);
        }
        prop_assert_eq!(to.0.marks(), Marks::of(&from.0, &from.1));
        for id in 1..from.1.node_count() {
            let here = to.0.node(NodeId(id)).unwrap();
            prop_assert_eq!(
                labels(&from.0, &from.1, NodeId(id)),
                labels(&to.1, &to.2, here)
            );
        }
    }

    #[test]
    fn known_entries_apply_like_new_ones(
        first in tables(), second in tables(), entries_max in 1..40usize
    ) {
        let Some(message) = dictionary_since(&second.0, &second.1, &mut Marks::default(), 10_000)
        else {
            return Ok(());
        };
        let mut whole = receiver(1_000);
        send(&first, &mut Marks::default(), 10_000, &mut whole);
        let (_, mut symbols, mut trie) = whole.clone();
        whole.0 = Translation::default();
        whole.0.apply(&message, &mut whole.1, &mut whole.2).unwrap();
        let mut translation = Translation::default();
        translation.check(&message, &trie).unwrap();
        while translation.lacks(&message).unwrap() {
            let known = translation.apply_known(&message, &symbols, &trie, entries_max).unwrap();
            prop_assert!(known <= entries_max);
            if known == 0 {
                translation.apply_slice(&message, &mut symbols, &mut trie, 1).unwrap();
            }
        }
        prop_assert_eq!(Marks::of(&symbols, &trie), Marks::of(&whole.1, &whole.2));
        for id in (0..second.1.node_count()).map(NodeId) {
            prop_assert_eq!(translation.node(id), whole.0.node(id));
        }
        // Now the tables have all of it.
        let mut again = Translation::default();
        again.check(&message, &trie).unwrap();
        let entries = message.strings.len() + message.frames.len() + message.node_frames.len();
        let known = again.apply_known(&message, &symbols, &trie, usize::MAX).unwrap();
        prop_assert_eq!(known, entries);
    }

    #[test]
    fn slices_of_a_dictionary_add_up_to_the_whole(from in tables(), entries_max in 1..40usize) {
        let Some(message) = dictionary_since(&from.0, &from.1, &mut Marks::default(), 10_000)
        else {
            return Ok(());
        };
        let mut whole = receiver(1_000);
        whole.0.apply(&message, &mut whole.1, &mut whole.2).unwrap();
        let mut to = receiver(1_000);
        to.0.check(&message, &to.2).unwrap();
        let entries = message.strings.len() + message.frames.len() + message.node_frames.len();
        let mut slices = 1;
        while to.0.apply_slice(&message, &mut to.1, &mut to.2, entries_max).unwrap() {
            slices += 1;
        }
        prop_assert_eq!(slices, entries.div_ceil(entries_max));
        prop_assert_eq!(to.0.marks(), whole.0.marks());
        for id in (0..from.1.node_count()).map(NodeId) {
            prop_assert_eq!(to.0.node(id), whole.0.node(id));
        }
        prop_assert_eq!(Marks::of(&to.1, &to.2), Marks::of(&whole.1, &whole.2));
    }

    #[test]
    fn a_full_receiver_counts_the_rest_as_overflow(from in tables(), nodes_max in 0..10usize) {
        let mut to = receiver(nodes_max);
        send(&from, &mut Marks::default(), 10_000, &mut to);
        for id in 1..from.1.node_count() {
            let there = labels(&from.0, &from.1, NodeId(id));
            let here = labels(&to.1, &to.2, to.0.node(NodeId(id)).unwrap());
            prop_assert_eq!(there.last(), here.last(), "the first level is always kept");
            prop_assert!(here == there || here.first().unwrap() == "[overflow]");
        }
    }
}

#[test]
fn a_frame_with_an_invalid_build_id_keeps_its_place_without_it() {
    let mut symbols = SymbolTable::new();
    let mut trie = CallTrie::new(10);
    let task = symbols.intern(&Frame::task("t"));
    for (build_id, offset) in [("b\n", 1), ("aa;curl x|sh #", 2), ("59fd0a2c", 3), ("", 4)] {
        let kind = FrameKind::Unresolved;
        let frame = Frame {
            kind,
            build_id,
            offset,
            ..Frame::function("", "", 0)
        };
        let frame = symbols.intern(&frame);
        trie.insert_path([task, frame]).unwrap();
    }
    let mut to = receiver(10);
    send(&(symbols, trie), &mut Marks::default(), 10_000, &mut to);
    let build_ids: Vec<_> = (2..=5)
        .map(|node| {
            let (_, frame) = to.2.node(to.0.node(NodeId(node)).unwrap()).unwrap();
            (to.1.frame(frame).build_id, to.1.frame(frame).offset)
        })
        .collect();
    assert_eq!(build_ids, [("", 1), ("", 2), ("59fd0a2c", 3), ("", 4)]);
    assert_eq!(to.0.invalid_build_ids(), 2);
}

/// A dictionary of two nodes, one below the other, changed.
fn changed(change: impl FnOnce(&mut v1::Dictionary)) -> v1::Dictionary {
    let mut symbols = SymbolTable::new();
    let frame = symbols.intern(&Frame::task("t"));
    let mut trie = CallTrie::new(10);
    trie.insert_path([frame, frame]).unwrap();
    let mut message = dictionary_since(&symbols, &trie, &mut Marks::default(), 10_000).unwrap();
    change(&mut message);
    message
}

#[test]
fn a_dictionary_after_a_gap_is_rejected_whole() {
    let mut to = receiver(10);
    let message = changed(|message| message.node_base = 2);
    let error = to.0.apply(&message, &mut to.1, &mut to.2).unwrap_err();
    let expected = "the dictionary's nodes start at 2, but the receiver holds only 1";
    assert_eq!(error.to_string(), expected);
    assert_eq!(
        to.0.marks(),
        Marks::default(),
        "no part of a rejected message is applied"
    );
    assert_eq!((to.1.string_count(), to.2.node_count()), (1, 1));
}

fn check_invalid(
    change: impl FnOnce(&mut v1::Dictionary),
    count: usize,
    first: &str,
    stacks: &[&[&str]],
) {
    let message = changed(change);
    let mut to = receiver(2_000);
    let invalid = to.0.apply(&message, &mut to.1, &mut to.2).unwrap().unwrap();
    assert_eq!((invalid.count, &*invalid.first.to_string()), (count, first));
    for (id, stack) in (1..).zip(stacks) {
        let mut labels = labels(&to.1, &to.2, to.0.node(NodeId(id)).unwrap());
        labels.reverse();
        assert_eq!(labels, *stack);
    }
}

#[test]
fn an_invalid_entry_is_replaced_and_costs_no_other_one() {
    let both: &[&[&str]] = &[&["[overflow]"], &["[overflow]", "[overflow]"]];
    let last: &[&[&str]] = &[&["t"], &["t", "[overflow]"]];
    let alone: &[&[&str]] = &[&["t"], &["[overflow]"]];
    check_invalid(
        |m| m.frames[0].file = 9,
        1,
        "string 9 is outside its table of 2",
        both,
    );
    check_invalid(
        |m| m.frames[0].kind = 99,
        1,
        "a frame's kind is 99; it must be a FrameKind of this protocol version",
        both,
    );
    check_invalid(
        |m| m.node_frames[1] = 7,
        1,
        "frame 7 is outside its table of 1",
        last,
    );
    check_invalid(
        |m| m.node_parent_gaps[0] = 0,
        1,
        "a node's distance to its parent is 0; it must be at least 1 and at most the node's id",
        &[&["[overflow]"], &["[overflow]", "t"]],
    );
    check_invalid(
        |m| m.node_parent_gaps[1] = 3,
        1,
        "a node's distance to its parent is 3; it must be at least 1 and at most the node's id",
        alone,
    );
    check_invalid(
        |m| m.node_frames.push(0),
        1,
        "a node's distance to its parent is 4294967295; it must be at least 1 and at most the node's id",
        &[&["t"], &["t", "t"], &["[overflow]"]],
    );
    check_invalid(
        |m| m.strings[0] = "x".repeat(5000),
        1,
        "a name, in bytes, is 5000; at most 4096 is allowed",
        &[&[&*bounded_name(&"x".repeat(5000))]],
    );
    let depth = DEPTH_MAX as usize;
    let mut deep = vec!["t"; depth];
    let whole = deep.clone();
    deep[depth - 1] = "[truncated]";
    let mut stacks: Vec<&[&str]> = (1..=depth).map(|depth| &whole[..depth]).collect();
    stacks.extend([&deep[..]; 5]);
    check_invalid(
        |m| {
            m.node_parent_gaps = vec![1; depth + 5];
            m.node_frames = vec![0; depth + 5];
        },
        5,
        "the depth of a stack is 1001; at most 1000 is allowed",
        &stacks,
    );
}

proptest! {
    /// Whatever is wrong with some entries, all are counted, and every node without a wrong one above it
    /// keeps its stack.
    #[test]
    fn entries_of_any_content_cost_only_themselves(
        from in tables(),
        frames in prop::collection::vec((any::<prop::sample::Index>(), any::<u32>()), 0..4),
        nodes in prop::collection::vec((any::<prop::sample::Index>(), any::<u32>(), any::<u32>()), 0..4),
        entries_max in 1..200usize,
    ) {
        let message = dictionary_since(&from.0, &from.1, &mut Marks::default(), 10_000);
        let Some(mut message) = message else { return Ok(()) };
        let mut wrong_frames = std::collections::BTreeSet::new();
        for (place, text) in frames {
            let place = place.index(message.frames.len());
            message.frames[place].function = text;
            wrong_frames.insert(place);
        }
        let mut wrong_nodes = std::collections::BTreeSet::new();
        for (place, gap, frame) in nodes {
            let place = place.index(message.node_frames.len());
            message.node_parent_gaps[place] = gap;
            message.node_frames[place] = frame;
            wrong_nodes.insert(place);
        }
        let mut to = receiver(1_000);
        to.0.check(&message, &to.2).unwrap();
        while to.0.apply_slice(&message, &mut to.1, &mut to.2, entries_max).unwrap() {}
        prop_assert_eq!(to.0.marks(), Marks::of(&from.0, &from.1));
        for id in 1..from.1.node_count() {
            let mut at = NodeId(id);
            let mut is_right = true;
            while let Some((parent, frame)) = from.1.node(at) {
                is_right &= !wrong_nodes.contains(&(at.index() - 1));
                is_right &= !wrong_frames.contains(&(frame.0 as usize));
                at = parent;
            }
            let here = labels(&to.1, &to.2, to.0.node(NodeId(id)).unwrap());
            prop_assert!(!is_right || here == labels(&from.0, &from.1, NodeId(id)));
        }
    }
}

/// The stacks of a program: each adds one to six nodes to an earlier one. As paths of function numbers.
fn stacks(count: usize) -> Vec<Vec<u32>> {
    let mut random = 1_u64;
    let mut below = |end: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) as usize % end
    };
    let mut stacks = vec![vec![0]];
    for _ in 1..count {
        let mut stack = stacks[below(stacks.len())].clone();
        stack.truncate(1 + below(stack.len()));
        (0..=below(6)).for_each(|_| stack.push(below(2_000) as u32));
        stacks.push(stack);
    }
    stacks
}

/// The bytes that a receiver keeps for an agent that met stacks in this order, and the agent's nodes.
fn kept(order: &[Vec<u32>], symbols: &mut SymbolTable, trie: &mut CallTrie) -> [usize; 2] {
    let mut own = (SymbolTable::new(), CallTrie::new(1 << 20));
    for stack in order {
        let names = stack.iter().map(|number| format!("function-{number}"));
        let frames: Vec<FrameId> = names
            .map(|name| own.0.intern(&Frame::function(&name, "a.rs", 1)))
            .collect();
        own.1.insert_path(frames).unwrap();
    }
    let mut translation = Translation::default();
    let mut held = Marks::default();
    while let Some(message) = dictionary_since(&own.0, &own.1, &mut held, 1 << 16) {
        translation.apply(&message, symbols, trie).unwrap();
    }
    [translation.bytes(), own.1.node_count() as usize]
}

/// Ten thousand agents of a program have a translation each. Plain lists took 6 bytes a node.
#[test]
fn a_further_agent_of_a_program_costs_little_in_whatever_order_it_meets_the_stacks() {
    let in_order = stacks(5_000);
    let mut shuffled = in_order.clone();
    shuffled.sort_by_key(|stack| {
        let hash = |sum: u32, number: &u32| sum.wrapping_mul(31).wrapping_add(*number);
        stack.iter().fold(7, hash).wrapping_mul(2_654_435_761)
    });
    let mut symbols = SymbolTable::new();
    let mut trie = CallTrie::new(1 << 20);
    kept(&in_order, &mut symbols, &mut trie);
    let [again, nodes] = kept(&in_order, &mut symbols, &mut trie);
    assert!(nodes > 10_000, "{nodes}");
    assert!(again < 4_096, "{again}");
    let [bytes, _] = kept(&shuffled, &mut symbols, &mut trie);
    assert!(5 * bytes < 7 * nodes, "{bytes} for {nodes}");
}
