//! Profiles as messages of OTLP, version v1development: several resources share one dictionary.

use std::collections::HashMap;
use std::hash::Hash;

use profiler_core::{Profile, TimeRange};
use prost::Message as _;

use crate::messages::otlp::{
    AnyValue, ExportProfilesServiceRequest, Function, KeyValue, KeyValueAndUnit, Line, Location,
    Mapping, Profile as OtlpProfile, ProfilesDictionary, Resource, ResourceProfiles, Sample, Scope,
    ScopeProfiles, Stack, Value, ValueType,
};
use crate::messages::pprof as proto;
use crate::pprof::{compressed, pushed_message};

/// The attribute of a mapping with its build id.
const BUILD_ID_KEY: &str = "process.executable.build_id.gnu";

/// Memory of an entry of a table, for [`OtlpRequest::bytes`]: at least what its numbers take encoded.
const ENTRY_BYTES: usize = 32;

/// A request of OTLP under construction.
///
/// Each resource has the profiles `cpu` and `off_cpu`, in nanoseconds, whose samples have the attribute
/// `task`. Inlined functions are lines of their location.
///
/// ```
/// use profiler_core::{Profile, TimeRange, Timestamp};
///
/// let start = Timestamp::from_unix_ns(1_000_000_000);
/// let range = TimeRange::new(start, start.shifted(1_000_000_000)).expect("it is not empty");
/// let mut request = emberline_flamegraph::OtlpRequest::new("emberline");
/// let name = ("service.name".to_owned(), "shop".to_owned());
/// request.add([name], &Profile::default(), range);
/// assert_eq!(request.gzip()[..2], [0x1f, 0x8b]);
/// ```
#[derive(Debug, Default)]
pub struct OtlpRequest {
    scope: String,
    resources: Vec<ResourceProfiles>,
    texts: Table<String>,
    mappings: Table<MappingKey>,
    functions: Table<FunctionKey>,
    locations: Table<LocationKey>,
    stacks: Table<Vec<i32>>,
    attributes: Table<AttributeKey>,
    /// Of texts, stacks and samples, whose sizes differ.
    bytes: usize,
}

/// Numbers of distinct entries, counted from 1: the entry 0 of each table is empty.
#[derive(Debug)]
struct Table<K> {
    numbers: HashMap<K, i32>,
    entries: Vec<K>,
}

impl<K> Default for Table<K> {
    fn default() -> Self {
        Table {
            numbers: HashMap::new(),
            entries: Vec::new(),
        }
    }
}

impl<K: Hash + Eq + Clone> Table<K> {
    fn number(&mut self, key: K) -> i32 {
        let next = i32::try_from(self.entries.len() + 1).expect("tables in memory are smaller");
        *self.numbers.entry(key).or_insert_with_key(|key| {
            self.entries.push(key.clone());
            next
        })
    }

    /// The table of the message, with its empty first entry.
    fn list<T: Default>(&self, entry: impl FnMut(&K) -> T) -> Vec<T> {
        std::iter::once(T::default())
            .chain(self.entries.iter().map(entry))
            .collect()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct MappingKey {
    filename: i32,
    /// Number of an attribute; 0 for none.
    build_id: i32,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct FunctionKey {
    name: i32,
    filename: i32,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct LocationKey {
    mapping: i32,
    /// In the module.
    address: u64,
    /// Function and line, the innermost inlined one first.
    lines: Vec<(i32, i64)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct AttributeKey {
    key: i32,
    value: i32,
}

impl OtlpRequest {
    /// An empty request of the instrumentation scope `scope`.
    #[must_use]
    pub fn new(scope: &str) -> OtlpRequest {
        OtlpRequest {
            scope: scope.to_owned(),
            ..OtlpRequest::default()
        }
    }

    /// Number of resources.
    #[must_use]
    pub fn resources(&self) -> usize {
        self.resources.len()
    }

    /// About the size of the message before compression, and at least it.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let entries = self.texts.entries.len()
            + self.mappings.entries.len()
            + self.functions.entries.len()
            + self.locations.entries.len()
            + self.attributes.entries.len();
        self.bytes + entries * ENTRY_BYTES
    }

    /// Adds the time of one resource in `range`.
    pub fn add(
        &mut self,
        attributes: impl IntoIterator<Item = (String, String)>,
        profile: &Profile,
        range: TimeRange,
    ) {
        let message = pushed_message(profile, range);
        let attributes = attributes.into_iter().map(|(key, value)| {
            self.bytes += key.len() + value.len() + ENTRY_BYTES;
            KeyValue {
                key,
                value: Some(AnyValue {
                    value: Some(Value::Text(value)),
                }),
                key_strindex: 0,
            }
        });
        let resource = Resource {
            attributes: attributes.collect(),
        };
        let samples = Converter::new(self, &message).samples();
        let [cpu, off_cpu] = [("cpu", samples.cpu), ("off_cpu", samples.off_cpu)]
            .map(|(kind, samples)| self.profile(kind, samples, range));
        let profiles = [cpu, off_cpu]
            .into_iter()
            .filter(|profile| !profile.samples.is_empty());
        let scope = Scope {
            name: self.scope.clone(),
            version: String::new(),
        };
        self.resources.push(ResourceProfiles {
            resource: Some(resource),
            scope_profiles: vec![ScopeProfiles {
                scope: Some(scope),
                profiles: profiles.collect(),
            }],
        });
    }

    fn profile(&mut self, kind: &str, samples: Vec<Sample>, range: TimeRange) -> OtlpProfile {
        let type_strindex = self.text(kind);
        let unit_strindex = self.text("nanoseconds");
        OtlpProfile {
            sample_type: Some(ValueType {
                type_strindex,
                unit_strindex,
            }),
            samples,
            time_unix_nano: u64::try_from(range.start().unix_ns()).unwrap_or(0),
            duration_nano: range.length_ns(),
            ..OtlpProfile::default()
        }
    }

    fn text(&mut self, text: &str) -> i32 {
        if text.is_empty() {
            return 0;
        }
        if !self.texts.numbers.contains_key(text) {
            self.bytes += text.len();
        }
        self.texts.number(text.to_owned())
    }

    fn attribute(&mut self, key: AttributeKey) -> i32 {
        if !self.attributes.numbers.contains_key(&key) {
            // The value is in the table of attributes, and in that of texts.
            self.bytes += self.text_of(key.value).len();
        }
        self.attributes.number(key)
    }

    fn text_of(&self, number: i32) -> &str {
        let index = usize::try_from(number - 1).ok();
        index.map_or("", |index| &self.texts.entries[index])
    }

    /// The message, `ExportProfilesServiceRequest`, in gzip.
    #[must_use]
    pub fn gzip(self) -> Vec<u8> {
        let dictionary = self.dictionary();
        let request = ExportProfilesServiceRequest {
            resource_profiles: self.resources,
            dictionary: Some(dictionary),
        };
        compressed(&request.encode_to_vec())
    }

    fn dictionary(&self) -> ProfilesDictionary {
        ProfilesDictionary {
            mapping_table: self.mappings.list(|mapping| Mapping {
                filename_strindex: mapping.filename,
                attribute_indices: Some(mapping.build_id)
                    .filter(|id| *id != 0)
                    .into_iter()
                    .collect(),
                ..Mapping::default()
            }),
            location_table: self.locations.list(|location| Location {
                mapping_index: location.mapping,
                address: location.address,
                lines: location
                    .lines
                    .iter()
                    .map(|(function_index, line)| Line {
                        function_index: *function_index,
                        line: *line,
                    })
                    .collect(),
            }),
            function_table: self.functions.list(|function| Function {
                name_strindex: function.name,
                filename_strindex: function.filename,
                ..Function::default()
            }),
            string_table: self.texts.list(Clone::clone),
            attribute_table: self.attributes.list(|attribute| KeyValueAndUnit {
                key_strindex: attribute.key,
                value: Some(AnyValue {
                    value: Some(Value::Text(self.text_of(attribute.value).to_owned())),
                }),
            }),
            stack_table: self.stacks.list(|stack| Stack {
                location_indices: stack.clone(),
            }),
        }
    }
}

/// The samples of a profile by what they measure.
#[derive(Default)]
struct Samples {
    cpu: Vec<Sample>,
    off_cpu: Vec<Sample>,
}

/// Adds the entries of a message of pprof to the tables of a request.
struct Converter<'a> {
    request: &'a mut OtlpRequest,
    message: &'a proto::Profile,
    /// By id in the message, counted from 1.
    locations: Vec<i32>,
}

impl<'a> Converter<'a> {
    fn new(request: &'a mut OtlpRequest, message: &'a proto::Profile) -> Converter<'a> {
        let mut converter = Converter {
            request,
            message,
            locations: Vec::new(),
        };
        let locations = message
            .location
            .iter()
            .map(|location| converter.location(location));
        converter.locations = locations.collect();
        converter
    }

    fn samples(mut self) -> Samples {
        let mut samples = Samples::default();
        for sample in &self.message.sample {
            let stack_index = self.stack(&sample.location_id);
            let attribute_indices: Vec<i32> = sample
                .label
                .iter()
                .map(|label| self.attribute(label))
                .collect();
            let wall_ns = sample.value[0];
            let cpu_ns = sample.value[1];
            for (list, value) in [
                (&mut samples.cpu, cpu_ns),
                (&mut samples.off_cpu, wall_ns - cpu_ns),
            ] {
                if value > 0 {
                    self.request.bytes += ENTRY_BYTES;
                    list.push(Sample {
                        stack_index,
                        attribute_indices: attribute_indices.clone(),
                        values: vec![value],
                        ..Sample::default()
                    });
                }
            }
        }
        samples
    }

    fn text(&mut self, index: i64) -> i32 {
        let text = &self.message.string_table[position(index)];
        self.request.text(text)
    }

    fn attribute(&mut self, label: &proto::Label) -> i32 {
        let key = self.text(label.key);
        let value = self.text(label.text);
        self.request.attribute(AttributeKey { key, value })
    }

    fn stack(&mut self, ids: &[u64]) -> i32 {
        if ids.is_empty() {
            return 0;
        }
        let stack: Vec<i32> = ids
            .iter()
            .map(|id| self.locations[position(*id) - 1])
            .collect();
        if !self.request.stacks.numbers.contains_key(&stack) {
            // A number has up to five bytes.
            self.request.bytes += stack.len() * 5 + ENTRY_BYTES;
        }
        self.request.stacks.number(stack)
    }

    fn location(&mut self, location: &proto::Location) -> i32 {
        let mapping = self
            .message
            .mapping
            .get(position(location.mapping_id).wrapping_sub(1));
        let start = mapping.map_or(0, |mapping| mapping.memory_start);
        let key = LocationKey {
            mapping: mapping.map_or(0, |mapping| self.mapping(mapping)),
            address: location.address.saturating_sub(start),
            lines: location
                .line
                .iter()
                .map(|line| (self.function(line), line.line))
                .collect(),
        };
        self.request.bytes += key.lines.len() * ENTRY_BYTES;
        self.request.locations.number(key)
    }

    fn mapping(&mut self, mapping: &proto::Mapping) -> i32 {
        let filename = self.text(mapping.filename);
        let value = self.text(mapping.build_id);
        let build_id = if value == 0 {
            0
        } else {
            let key = self.request.text(BUILD_ID_KEY);
            self.request.attribute(AttributeKey { key, value })
        };
        self.request
            .mappings
            .number(MappingKey { filename, build_id })
    }

    fn function(&mut self, line: &proto::Line) -> i32 {
        let function = &self.message.function[position(line.function_id) - 1];
        let name = self.text(function.name);
        let filename = self.text(function.filename);
        self.request
            .functions
            .number(FunctionKey { name, filename })
    }
}

/// A number of our own messages, whose tables are in memory.
fn position<N: TryInto<usize>>(number: N) -> usize {
    number
        .try_into()
        .unwrap_or_else(|_| unreachable!("a table in memory has fewer entries"))
}
