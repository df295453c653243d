//! OTLP profiles, which become messages of pprof: both have the same tables, and the parser of pprof
//! then checks and limits them like any other profile.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ptr;

use flamegraph::messages::otlp::{
    AnyValue, ExportProfilesServiceRequest, KeyValue, KeyValueAndUnit, Profile, ProfilesDictionary,
    Sample, Value,
};
use flamegraph::messages::{json, otlp as messages, pprof as proto};
use prost::Message as _;

use super::limits::OTLP_ENTRIES_MAX;
use super::pprof::{Fields, Value as FieldValue};

/// Names of a mapping's attribute with the build id that symbol files have.
const BUILD_ID_KEYS: [&str; 2] = [
    "process.executable.build_id.gnu",
    "process.executable.build_id.go",
];

/// Most characters of a text that an error repeats.
const FIRST_TEXT_CHARS: usize = 80;

/// The attribute of samples with the name of their thread, and the label that the parser of pprof knows.
const THREAD_KEY: &str = "thread.name";
const THREAD_LABEL: &str = "thread_name";

/// How a request is encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OtlpEncoding {
    /// `ExportProfilesServiceRequest` or `ProfilesData` in protobuf.
    Protobuf,
    /// The same in OTLP's JSON.
    Json,
}

/// A profile of a request.
#[derive(Clone, PartialEq, Debug)]
pub struct OtlpProfile {
    /// Attributes of its resource and of itself.
    pub attributes: BTreeMap<String, String>,
    /// The name of the scope that measured it, such as an instrumentation library.
    pub scope: String,
    /// The profile as a message of pprof, without compression. Empty if it has no samples.
    pub pprof: Vec<u8>,
}

/// Why a request of OTLP has no profiles.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OtlpError {
    /// Another layout.
    #[error("invalid OTLP profiles: {0}; {LAYOUT}")]
    Protobuf(#[from] prost::DecodeError),
    /// Not protobuf.
    #[error("invalid OTLP profiles: {0}; {LAYOUT}")]
    Message(String),
    /// More entries than are read.
    #[error(
        "the request has more than {OTLP_ENTRIES_MAX} samples and table entries; send it in parts"
    )]
    TooMany,
    /// Not OTLP's JSON.
    #[error("invalid OTLP profiles in JSON: {0}; {LAYOUT}")]
    Json(#[from] serde_json::Error),
    /// Members of JSON that an older layout has.
    #[error(
        "invalid OTLP profiles in JSON: members of an older layout, such as `sample`; {LAYOUT}"
    )]
    OlderJson,
    /// An index is outside of its table.
    #[error(
        "invalid OTLP profiles: {what} {index} is outside of a table of {count} (dictionary.{}); {LAYOUT}",
        table_of(what)
    )]
    Index {
        /// Kind of the entry, such as `stack`.
        what: &'static str,
        /// The index.
        index: i32,
        /// Entries of the table.
        count: usize,
    },
    /// The table of texts begins with one.
    #[error(
        "invalid OTLP profiles: the table of texts (dictionary.string_table) begins with {text:?}; its first entry must be empty; {LAYOUT}"
    )]
    FirstText {
        /// The beginning of that text.
        text: String,
    },
    /// A sample has a field as an older layout has it.
    #[error(
        "invalid OTLP profiles: a sample of an older layout, with a link in place of values; {LAYOUT}"
    )]
    OlderSample,
    /// A sample has an attribute twice, as if values were attributes.
    #[error("invalid OTLP profiles: sample {number} has attribute {index} twice; {LAYOUT}")]
    RepeatedAttribute {
        /// Number of the sample in its profile.
        number: usize,
        /// Index of the attribute.
        index: i32,
    },
    /// A sample that no layout allows, or one of an older layout.
    #[error(
        "invalid OTLP profiles: sample {number} has neither values nor timestamps_unix_nano; {LAYOUT}"
    )]
    NoValues {
        /// Number of the sample in its profile.
        number: usize,
    },
    /// A sample has other numbers of values than of timestamps.
    #[error(
        "invalid OTLP profiles: sample {number} has {values} values for {timestamps} timestamps_unix_nano; one value for \
         each is allowed, or only one of the two"
    )]
    Values {
        /// Number of the sample in its profile.
        number: usize,
        /// Its values.
        values: usize,
        /// Its timestamps.
        timestamps: usize,
    },
}

/// Part of each error, because a message of another version often looks like a broken one.
const LAYOUT: &str = "this is the layout v1development of opentelemetry-proto 1.10; senders with 1.9 or \
                      earlier have another one and must be updated";

/// The field with the entries of that kind.
fn table_of(what: &str) -> String {
    match what {
        "text" => "string_table".to_owned(),
        other => format!("{other}_table"),
    }
}

/// Reads a request.
///
/// # Errors
/// [`OtlpError`] if it is invalid. The profiles themselves are checked by [`import`](super::import).
pub fn otlp_profiles(
    content: &[u8],
    encoding: OtlpEncoding,
) -> Result<Vec<OtlpProfile>, OtlpError> {
    let request = match encoding {
        OtlpEncoding::Protobuf => {
            check_count(content, &REQUEST, &mut OTLP_ENTRIES_MAX.clone())?;
            ExportProfilesServiceRequest::decode(content)?
        }
        OtlpEncoding::Json => {
            let request: ExportProfilesServiceRequest = json::from_slice(content)?;
            let mut profiles = request
                .resource_profiles
                .iter()
                .flat_map(|resource| &resource.scope_profiles);
            let has_samples = profiles.any(|scope| {
                scope
                    .profiles
                    .iter()
                    .any(|profile| !profile.samples.is_empty())
            });
            // The members of an older layout have other names, which are ignored like all that are unknown.
            if !has_samples && messages::is_older_json(content) {
                return Err(OtlpError::OlderJson);
            }
            request
        }
    };
    let dictionary = request.dictionary.unwrap_or_default();
    // Absent texts have its index.
    if let Some(first) = dictionary
        .string_table
        .first()
        .filter(|first| !first.is_empty())
    {
        let text = first.chars().take(FIRST_TEXT_CHARS).collect();
        return Err(OtlpError::FirstText { text });
    }
    let mut profiles = Vec::new();
    for resource in request.resource_profiles {
        let given = resource.resource.unwrap_or_default().attributes;
        let attributes = resource_attributes(&dictionary, &given)?;
        for scope in resource.scope_profiles {
            let name = scope.scope.map(|scope| scope.name).unwrap_or_default();
            for profile in scope.profiles {
                let mut attributes = attributes.clone();
                for attribute in indexed(&dictionary, &profile.attribute_indices)? {
                    let Some(value) = text(&dictionary, attribute.value.as_ref())? else {
                        continue;
                    };
                    attributes.insert(key(&dictionary, attribute)?.to_owned(), value);
                }
                let pprof = Converter::new(&dictionary).convert(&profile)?;
                profiles.push(OtlpProfile {
                    attributes,
                    scope: name.clone(),
                    pprof,
                });
            }
        }
    }
    Ok(profiles)
}

/// The messages in a message, by tag.
struct Shape(&'static [(u32, &'static Shape)]);

static LEAF: Shape = Shape(&[]);
static SAMPLE: Shape = Shape(&[]);
static PROFILE: Shape = Shape(&[(2, &SAMPLE)]);

/// The tag of a sample's values. In 1.8 and 1.9 it is that of its link, one number.
const VALUES_TAG: u32 = 4;
static SCOPE_PROFILES: Shape = Shape(&[(2, &PROFILE)]);
static RESOURCE_PROFILES: Shape = Shape(&[(1, &LEAF), (2, &SCOPE_PROFILES)]);
static LOCATION: Shape = Shape(&[(3, &LEAF)]);
static DICTIONARY: Shape = Shape(&[(2, &LOCATION)]);
static REQUEST: Shape = Shape(&[(1, &RESOURCE_PROFILES), (2, &DICTIONARY)]);

/// Checks how many entries a message has before it is decoded, because an empty sample takes 2 bytes of a
/// message and 88 bytes of memory.
fn check_count(message: &[u8], shape: &Shape, left: &mut usize) -> Result<(), OtlpError> {
    for field in (Fields { rest: message }) {
        let (tag, field) = field.map_err(OtlpError::Message)?;
        let field = match field {
            FieldValue::Bytes(field) => field,
            FieldValue::Number(_) if tag == VALUES_TAG && ptr::eq(shape, &SAMPLE) => {
                return Err(OtlpError::OlderSample);
            }
            _ => continue,
        };
        *left = left.checked_sub(1).ok_or(OtlpError::TooMany)?;
        if let Some((_, inner)) = shape.0.iter().find(|(known, _)| *known == tag) {
            check_count(field, inner, left)?;
        }
    }
    Ok(())
}

/// A value as the text of a label; `None` for lists, maps and bytes.
fn text(
    dictionary: &ProfilesDictionary,
    value: Option<&AnyValue>,
) -> Result<Option<String>, OtlpError> {
    let Some(value) = value.and_then(|value| value.value.as_ref()) else {
        return Ok(None);
    };
    Ok(Some(match value {
        Value::Text(text) => text.clone(),
        Value::Bool(is) => is.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Double(number) => number.to_string(),
        Value::TextIndex(index) => {
            let text = entry("text", &dictionary.string_table, *index)?;
            text.cloned().unwrap_or_default()
        }
    }))
}

/// The attributes of a resource, whose texts may be in the dictionary.
fn resource_attributes(
    dictionary: &ProfilesDictionary,
    given: &[KeyValue],
) -> Result<BTreeMap<String, String>, OtlpError> {
    let mut attributes = BTreeMap::new();
    for attribute in given {
        let Some(value) = text(dictionary, attribute.value.as_ref())? else {
            continue;
        };
        let key = match &*attribute.key {
            "" => entry("text", &dictionary.string_table, attribute.key_strindex)?
                .map_or("", String::as_str),
            key => key,
        };
        attributes.insert(key.to_owned(), value);
    }
    Ok(attributes)
}

/// The entry of a table. Its first entry stands for none, unless a sender put one there: its tables have no entry that
/// stands for none.
fn entry<'t, T: Default + PartialEq>(
    what: &'static str,
    table: &'t [T],
    index: i32,
) -> Result<Option<&'t T>, OtlpError> {
    if index == 0 {
        return Ok(table.first().filter(|first| **first != T::default()));
    }
    let entry = usize::try_from(index)
        .ok()
        .and_then(|index| table.get(index));
    entry.map(Some).ok_or(OtlpError::Index {
        what,
        index,
        count: table.len(),
    })
}

fn indexed<'d>(
    dictionary: &'d ProfilesDictionary,
    indices: &[i32],
) -> Result<Vec<&'d KeyValueAndUnit>, OtlpError> {
    let entries = indices
        .iter()
        .map(|index| entry("attribute", &dictionary.attribute_table, *index));
    Ok(entries
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .flatten()
        .collect())
}

fn key<'d>(
    dictionary: &'d ProfilesDictionary,
    attribute: &KeyValueAndUnit,
) -> Result<&'d str, OtlpError> {
    let key = entry("text", &dictionary.string_table, attribute.key_strindex)?;
    Ok(key.map_or("", String::as_str))
}

/// When a profile was recorded, in nanoseconds; 0 if that is not known.
struct Times {
    start: u64,
    duration: u64,
}

impl Times {
    /// The times of the profile or, where it has none, of its samples.
    fn of(profile: &Profile) -> Times {
        let times = profile
            .samples
            .iter()
            .flat_map(|sample| &sample.timestamps_unix_nano)
            .copied();
        let first = times.clone().min().unwrap_or(0);
        let last = times.max().unwrap_or(0);
        let start = match profile.time_unix_nano {
            0 => first,
            start => start,
        };
        let duration = match profile.duration_nano {
            0 => last.saturating_sub(start),
            duration => duration,
        };
        Times { start, duration }
    }
}

/// Makes a message of pprof with those entries of the dictionary that a profile uses.
struct Converter<'d> {
    dictionary: &'d ProfilesDictionary,
    profile: proto::Profile,
    /// Indexes of the message's texts.
    texts: HashMap<String, i64>,
    /// Ids of the message's entries by index of the dictionary.
    mappings: HashMap<i32, u64>,
    functions: HashMap<i32, u64>,
    locations: HashMap<i32, u64>,
}

impl<'d> Converter<'d> {
    fn new(dictionary: &'d ProfilesDictionary) -> Converter<'d> {
        let profile = proto::Profile {
            string_table: vec![String::new()],
            ..Default::default()
        };
        Converter {
            dictionary,
            profile,
            texts: HashMap::from([(String::new(), 0)]),
            mappings: HashMap::new(),
            functions: HashMap::new(),
            locations: HashMap::new(),
        }
    }

    fn convert(mut self, profile: &Profile) -> Result<Vec<u8>, OtlpError> {
        if profile.samples.is_empty() {
            return Ok(Vec::new());
        }
        let sample_type = profile.sample_type.unwrap_or_default();
        let sample_type = self.value_type(sample_type)?;
        self.profile.sample_type.push(sample_type);
        self.profile.period_type = profile
            .period_type
            .map(|kind| self.value_type(kind))
            .transpose()?;
        self.profile.period = profile.period;
        let Times { start, duration } = Times::of(profile);
        // An absurd time stays one, so that it is rejected.
        self.profile.time_nanos = i64::try_from(start).unwrap_or(i64::MAX);
        self.profile.duration_nanos = i64::try_from(duration).unwrap_or(i64::MAX);
        for (number, sample) in (1..).zip(&profile.samples) {
            let sample = self.sample(number, sample)?;
            self.profile.sample.push(sample);
        }
        Ok(self.profile.encode_to_vec())
    }

    fn value_type(&mut self, kind: messages::ValueType) -> Result<proto::ValueType, OtlpError> {
        let unit = self.text_at(kind.unit_strindex)?;
        Ok(proto::ValueType {
            kind: self.text_at(kind.type_strindex)?,
            unit,
        })
    }

    fn sample(&mut self, number: usize, sample: &Sample) -> Result<proto::Sample, OtlpError> {
        let values = sample.values.len();
        let timestamps = sample.timestamps_unix_nano.len();
        let value = match (values, timestamps) {
            (0, 0) => return Err(OtlpError::NoValues { number }),
            // Each timestamp is an event.
            (0, _) => i64::try_from(timestamps).unwrap_or(i64::MAX),
            (_, 0) => sample
                .values
                .iter()
                .fold(0, |sum: i64, value| sum.saturating_add(*value)),
            _ if values != timestamps => {
                return Err(OtlpError::Values {
                    number,
                    values,
                    timestamps,
                });
            }
            _ => sample
                .values
                .iter()
                .fold(0, |sum: i64, value| sum.saturating_add(*value)),
        };
        let mut seen = HashSet::new();
        let mut indices = sample.attribute_indices.iter();
        if values == 0
            && let Some(index) = indices.find(|index| !seen.insert(**index))
        {
            let index = *index;
            return Err(OtlpError::RepeatedAttribute { number, index });
        }
        let stack = entry("stack", &self.dictionary.stack_table, sample.stack_index)?;
        let mut location_id = Vec::new();
        for index in stack.into_iter().flat_map(|stack| &stack.location_indices) {
            location_id.extend(self.location(*index)?);
        }
        let mut label = Vec::new();
        for attribute in indexed(self.dictionary, &sample.attribute_indices)? {
            let Some(value) = text(self.dictionary, attribute.value.as_ref())? else {
                continue;
            };
            let key = match key(self.dictionary, attribute)? {
                THREAD_KEY => THREAD_LABEL,
                key => key,
            };
            let key = self.text(key);
            label.push(proto::Label {
                key,
                text: self.text(&value),
                ..proto::Label::default()
            });
        }
        Ok(proto::Sample {
            location_id,
            value: vec![value],
            label,
        })
    }

    /// The id of a location; `None` for the entry that stands for none.
    fn location(&mut self, index: i32) -> Result<Option<u64>, OtlpError> {
        if let Some(id) = self.locations.get(&index) {
            return Ok(Some(*id));
        }
        let location = entry("location", &self.dictionary.location_table, index)?;
        let Some(location) = location else {
            return Ok(None);
        };
        let mapping_id = self.mapping(location.mapping_index)?;
        let mut line = Vec::with_capacity(location.lines.len());
        for entry in &location.lines {
            let function_id = self.function(entry.function_index)?;
            line.push(proto::Line {
                function_id,
                line: entry.line,
            });
        }
        let id = self.profile.location.len() as u64 + 1;
        let address = location.address;
        self.profile.location.push(proto::Location {
            id,
            mapping_id,
            address,
            line,
        });
        self.locations.insert(index, id);
        Ok(Some(id))
    }

    /// The id of a mapping; 0 for none.
    fn mapping(&mut self, index: i32) -> Result<u64, OtlpError> {
        if let Some(id) = self.mappings.get(&index) {
            return Ok(*id);
        }
        let mapping = entry("mapping", &self.dictionary.mapping_table, index)?;
        let Some(mapping) = mapping else { return Ok(0) };
        let mut by_key = BTreeMap::new();
        for attribute in indexed(self.dictionary, &mapping.attribute_indices)? {
            let Some(value) = text(self.dictionary, attribute.value.as_ref())? else {
                continue;
            };
            by_key.insert(key(self.dictionary, attribute)?, value);
        }
        let build_id = BUILD_ID_KEYS
            .iter()
            .find_map(|key| by_key.get(key))
            .map_or(0, |build_id| self.text(build_id));
        let id = self.profile.mapping.len() as u64 + 1;
        let filename = self.text_at(mapping.filename_strindex)?;
        self.profile.mapping.push(proto::Mapping {
            id,
            memory_start: mapping.memory_start,
            memory_limit: mapping.memory_limit,
            file_offset: mapping.file_offset,
            filename,
            build_id,
            ..Default::default()
        });
        self.mappings.insert(index, id);
        Ok(id)
    }

    fn function(&mut self, index: i32) -> Result<u64, OtlpError> {
        if let Some(id) = self.functions.get(&index) {
            return Ok(*id);
        }
        let function = entry("function", &self.dictionary.function_table, index)?
            .copied()
            .unwrap_or_default();
        let name = match function.name_strindex {
            0 => function.system_name_strindex,
            name => name,
        };
        let id = self.profile.function.len() as u64 + 1;
        let name = self.text_at(name)?;
        let filename = self.text_at(function.filename_strindex)?;
        self.profile.function.push(proto::Function {
            id,
            name,
            filename,
            ..proto::Function::default()
        });
        self.functions.insert(index, id);
        Ok(id)
    }

    /// The message's index of a text of the dictionary.
    fn text_at(&mut self, index: i32) -> Result<i64, OtlpError> {
        let text = entry("text", &self.dictionary.string_table, index)?;
        Ok(text.map_or(0, |text| self.text(text)))
    }

    fn text(&mut self, text: &str) -> i64 {
        if let Some(index) = self.texts.get(text) {
            return *index;
        }
        let index = self.profile.string_table.len() as i64;
        self.profile.string_table.push(text.to_owned());
        self.texts.insert(text.to_owned(), index);
        index
    }
}

#[cfg(test)]
mod tests;
