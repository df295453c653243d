//! Time by function.

use profiler_core::{Frame, FrameId, FrameKind, Profile, Weight};

use crate::json::kind_name;
use crate::prune::depths;
use crate::symbols::crate_of;

/// A frame of a profile with the time of all its calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FunctionTime<'a> {
    /// A function, or a level above functions, such as a task.
    pub frame: Frame<&'a str>,
    /// Time outside of callees, by state.
    pub own: Weight,
    /// Time with callees. A recursive function counts once.
    pub total_ns: u64,
}

impl FunctionTime<'_> {
    /// Returns the kind of the frame: `function`, `task`, … as in [`json()`](crate::json()).
    #[must_use]
    pub fn kind(&self) -> &'static str {
        kind_name(self.frame.kind)
    }

    /// Its crate or library; empty for anything but functions.
    #[must_use]
    pub fn owner(&self) -> &str {
        owner(&self.frame)
    }
}

/// The crate or library of a function; empty for anything else.
pub(crate) fn owner<'a>(frame: &Frame<&'a str>) -> &'a str {
    match frame.kind {
        FrameKind::Function | FrameKind::Unresolved => crate_of(frame),
        _ => "",
    }
}

/// All frames of a profile with their time, in the order of their numbers. Frames of a larger profile of
/// which this one is a part have no time.
#[must_use]
pub fn function_times(profile: &Profile) -> Vec<FunctionTime<'_>> {
    let frames = profile.symbols().frame_count();
    let mut functions: Vec<FunctionTime<'_>> = (0..frames)
        .map(|id| FunctionTime {
            frame: profile.frame(FrameId(id)),
            own: Weight::ZERO,
            total_ns: 0,
        })
        .collect();

    let totals = profile.totals();
    let depths = depths(profile);
    let mut path: Vec<FrameId> = Vec::new();
    // Number of times each frame is on the path: only its outermost call adds to its total.
    let mut active = vec![0u32; frames as usize];
    for (id, node) in (1..).zip(profile.nodes()) {
        for frame in path.drain(depths[id] as usize - 1..) {
            active[frame.0 as usize] -= 1;
        }
        let index = node.frame.0 as usize;
        let function = &mut functions[index];
        function.own += node.own;
        if active[index] == 0 {
            function.total_ns = function.total_ns.saturating_add(totals[id].total_ns());
        }
        active[index] += 1;
        path.push(node.frame);
    }
    functions
}
