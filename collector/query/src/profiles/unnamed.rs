//! Time in functions without a name.

use std::collections::BTreeMap;

use profiler_core::{CodePlace, FrameKind, Profile};

use base::limits::UNNAMED_MODULES_MAX;
use naming::{Missing, Naming};

/// Own time of a profile in functions without a name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Unnamed {
    pub total_ns: u64,
    /// Those with the most time first.
    pub modules: Vec<UnnamedModule>,
}

/// The part of it in one module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnnamedModule {
    pub module: String,
    pub build_id: String,
    pub own_ns: u64,
    pub why: Missing,
}

/// Time of a module in functions without a name.
#[derive(Clone, Copy, Default, Debug)]
struct UnnamedTime {
    own_ns: u64,
    /// Whether some of it is at offsets in the module's file.
    has_file_offsets: bool,
}

impl Unnamed {
    pub(crate) fn of(profile: &Profile, naming: &Naming) -> Unnamed {
        let mut by_module: BTreeMap<(&str, &str), UnnamedTime> = BTreeMap::new();
        for node in profile.nodes().iter().filter(|node| !node.own.is_zero()) {
            let frame = profile.frame(node.frame);
            if frame.kind == FrameKind::Unresolved {
                let time = by_module.entry((frame.module, frame.build_id)).or_default();
                time.own_ns = time.own_ns.saturating_add(node.own.total_ns());
                let place = CodePlace::of(frame.offset);
                time.has_file_offsets |= matches!(place, CodePlace::FileOffset(_));
            }
        }
        let total_ns = by_module
            .values()
            .fold(0, |sum: u64, time| sum.saturating_add(time.own_ns));
        let mut modules: Vec<_> = by_module.into_iter().collect();
        modules.sort_by_key(|(module, time)| (std::cmp::Reverse(time.own_ns), *module));
        modules.truncate(UNNAMED_MODULES_MAX);
        let modules = modules
            .into_iter()
            .map(|((module, build_id), time)| UnnamedModule {
                module: module.to_owned(),
                build_id: build_id.to_owned(),
                own_ns: time.own_ns,
                why: if time.has_file_offsets {
                    naming.why_missing_offsets(build_id)
                } else {
                    naming.why_missing(build_id)
                },
            });
        Unnamed {
            total_ns,
            modules: modules.collect(),
        }
    }

    pub fn is_pending(&self) -> bool {
        self.modules
            .iter()
            .any(|module| module.why == Missing::Pending)
    }
}
