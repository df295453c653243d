//! Labels and phases of a task as JSON in text columns: every Parquet reader has functions for it, and
//! zstd reduces a phase to about 7 bytes.

use std::fmt;
use std::sync::{Arc, LazyLock};

use profiler_core::hash::KeyedSet;
use profiler_core::{PhaseInterval, TaskDetail};
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Most distinct strings of one row group that rows share.
const SHARED_TEXTS_MAX: usize = 4_096;

/// `{"key": "value", …}`, in the order of the labels.
pub(crate) fn labels_json(detail: Option<&TaskDetail>) -> Arc<str> {
    static NONE: LazyLock<Arc<str>> = LazyLock::new(|| "{}".into());
    match detail.map_or(&[][..], |detail| &detail.labels) {
        [] => NONE.clone(),
        labels => json(&Labels(labels)),
    }
}

/// `[["transfer", start, duration], …]` in nanoseconds, the start relative to the task's. A fourth number
/// is the number of intervals if it is a sum of several.
pub(crate) fn phases_json(detail: Option<&TaskDetail>) -> Arc<str> {
    static NONE: LazyLock<Arc<str>> = LazyLock::new(|| "[]".into());
    match detail.map_or(&[][..], |detail| &detail.phases) {
        [] => NONE.clone(),
        phases => json(&Phases(phases)),
    }
}

fn json(value: &impl Serialize) -> Arc<str> {
    serde_json::to_string(value)
        .expect("lists of texts and numbers are JSON")
        .into()
}

struct Labels<'a>(&'a [Label]);

impl Serialize for Labels<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (&**key, &**value)))
    }
}

struct Phases<'a>(&'a [PhaseInterval]);

impl Serialize for Phases<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(Phase))
    }
}

struct Phase<'a>(&'a PhaseInterval);

impl Serialize for Phase<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let PhaseInterval {
            name,
            start_ns,
            duration_ns,
            count,
        } = self.0;
        match count {
            1 => (&**name, start_ns, duration_ns).serialize(serializer),
            count => (&**name, start_ns, duration_ns, count).serialize(serializer),
        }
    }
}

/// A key and its value.
pub(crate) type Label = (Arc<str>, Arc<str>);

/// Decodes the columns. Rows share frequent strings.
#[derive(Default)]
pub(crate) struct SharedTexts(KeyedSet<Arc<str>>);

impl SharedTexts {
    /// Decodes the output of [`labels_json`].
    pub(crate) fn labels(&mut self, json: &str) -> Result<Vec<Label>, String> {
        if json == "{}" {
            return Ok(Vec::new());
        }
        let LabelList(labels) = serde_json::from_str(json)
            .map_err(|error| format!("invalid labels of a task: {error}"))?;
        Ok(labels
            .into_iter()
            .map(|(key, value)| (self.shared(&key), self.shared(&value)))
            .collect())
    }

    /// Decodes the output of [`phases_json`].
    pub(crate) fn phases(&mut self, json: &str) -> Result<Vec<PhaseInterval>, String> {
        if json == "[]" {
            return Ok(Vec::new());
        }
        let phases: Vec<PhaseRow> = serde_json::from_str(json)
            .map_err(|error| format!("invalid phases of a task: {error}"))?;
        Ok(phases
            .into_iter()
            .map(
                |PhaseRow(name, start_ns, duration_ns, count): PhaseRow| PhaseInterval {
                    name: self.shared(&name),
                    start_ns,
                    duration_ns,
                    count,
                },
            )
            .collect())
    }

    fn shared(&mut self, text: &str) -> Arc<str> {
        if let Some(text) = self.0.get(text) {
            return text.clone();
        }
        let text: Arc<str> = text.into();
        if self.0.len() < SHARED_TEXTS_MAX {
            self.0.insert(text.clone());
        }
        text
    }
}

#[derive(Deserialize)]
struct PhaseRow(String, i64, u64, #[serde(default = "once")] u32);

fn once() -> u32 {
    1
}

/// The entries of an object in order, including duplicate keys.
struct LabelList(Vec<(String, String)>);

impl<'de> Deserialize<'de> for LabelList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = LabelList;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of texts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LabelList, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(LabelList(entries))
            }
        }
        deserializer
            .deserialize_map(Entries)
            .map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn labels_and_phases_are_read_back(
            labels in prop::collection::vec((".{0,4}", ".{0,4}"), 0..4),
            phases in prop::collection::vec((".{0,4}", any::<i64>(), any::<u64>(), any::<u32>()), 0..4),
        ) {
            let labels = labels.into_iter().map(|(key, value)| (key.into(), value.into()));
            let phases = phases.into_iter().map(|(name, start_ns, duration_ns, count)| {
                PhaseInterval { name: name.into(), start_ns, duration_ns, count }
            });
            let labels = labels.collect::<Vec<_>>();
            let phases = phases.collect::<Vec<_>>();
            let detail = TaskDetail { labels, phases, ..TaskDetail::default() };
            let mut texts = SharedTexts::default();
            prop_assert_eq!(texts.labels(&labels_json(Some(&detail))), Ok(detail.labels.clone()));
            prop_assert_eq!(texts.phases(&phases_json(Some(&detail))), Ok(detail.phases.clone()));
        }

        #[test]
        fn any_text_is_decoded_or_rejected(text in ".{0,30}") {
            let mut texts = SharedTexts::default();
            let _ = (texts.labels(&text), texts.phases(&text));
        }
    }

    #[test]
    fn labels_and_phases_are_plain_json() {
        let detail = TaskDetail {
            labels: vec![("k".into(), "\"v\"".into()), ("k".into(), "".into())],
            phases: vec![phase("queue", -5, 5, 1), phase("disk-read", 0, 7, 3)],
            ..TaskDetail::default()
        };
        assert_eq!(&*labels_json(Some(&detail)), r#"{"k":"\"v\"","k":""}"#);
        assert_eq!(
            &*phases_json(Some(&detail)),
            r#"[["queue",-5,5],["disk-read",0,7,3]]"#
        );
        assert_eq!((&*labels_json(None), &*phases_json(None)), ("{}", "[]"));
        let mut texts = SharedTexts::default();
        assert!(texts.phases(r#"[["queue",-5]]"#).is_err());
        assert!(texts.labels(r#"{"k":1}"#).is_err());
    }

    fn phase(name: &str, start_ns: i64, duration_ns: u64, count: u32) -> PhaseInterval {
        PhaseInterval {
            name: name.into(),
            start_ns,
            duration_ns,
            count,
        }
    }
}
