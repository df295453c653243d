//! Functions at an address as frames.

use profiler_core::limits::bounded_name;
use profiler_core::{Frame, FrameKind};

use crate::debug_info::Locations;
use crate::functions;
use crate::names::{Described, full_names};

/// Frames with names, files and lines, without their module: the compiled function, then those inlined
/// into it. Empty if none has a name.
#[must_use]
pub fn frames_of(found: &Locations, symbol: Option<&str>) -> Vec<Frame<String>> {
    let only_symbol = [Described {
        linkage_name: "",
        name: "",
        file: "",
    }];
    let functions: Vec<Described<'_>> = found.functions.iter().map(Described::from).collect();
    let functions = if functions.is_empty() {
        &only_symbol[..]
    } else {
        &functions
    };
    let names = full_names(functions, symbol, found.rust);
    let mut lines = found
        .functions
        .iter()
        .map(|location: &'_ functions::Location| (location.file.clone(), location.line));
    let mut frames = Vec::with_capacity(names.len());
    for (depth, name) in names.into_iter().enumerate() {
        let (file, line) = lines.next().unwrap_or_default();
        // A line without a name would be useful too, but frames are merged by name.
        if name.is_empty() {
            continue;
        }
        frames.push(Frame {
            kind: FrameKind::Function,
            function: bounded_name(&name).into_owned(),
            file: bounded_name(&file).into_owned(),
            line,
            module: String::new(),
            build_id: String::new(),
            offset: 0,
            inlined: depth > 0,
        });
    }
    if let Some(outermost) = frames.first_mut() {
        outermost.inlined = false;
    }
    frames
}
