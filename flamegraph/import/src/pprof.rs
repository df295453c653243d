//! `profile.proto` of pprof. The message is read field by field, because decoding it whole would take 36
//! bytes of memory for a byte of an invalid file.

mod columns;
mod frames;
mod known;
mod numbered;

use std::borrow::Cow;
use std::ops::Range;

use flamegraph::messages::pprof as proto;
use profiler_core::hash::KeyedMap;
use profiler_core::{FrameId, NodeId, Timestamp};
use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint};
use symbols::demangled_name;

use self::columns::Measure;
use self::frames::Stacks;
use self::known::KnownStacks;
use self::numbered::Numbered;
use super::builder::{Builder, Sample, Times};
use super::error::ImportError;
use super::json::check_table;
use super::known::KnownTables;
use super::labels::SampleLabels;
use super::limits::{ENTRY_BYTES_MAX, NAMES_BYTES_MAX};
use super::model::{ImportFormat, ImportOptions, Imported};

/// Parses a message, decompressed. Stacks that are among the known ones become nodes of those.
pub(super) fn parse(
    content: &[u8],
    options: &ImportOptions,
    known: Option<&dyn KnownTables>,
) -> Result<Imported, ImportError> {
    let mut builder = Builder::new(ImportFormat::Pprof, options);
    let tables = Tables::read(&builder, content)?;
    let mut stacks = Stacks::new(&tables);
    let known = match known {
        Some(known) => Some(KnownStacks::read(&mut stacks, &mut builder, known)?),
        None => {
            stacks.intern_all(&mut builder)?;
            None
        }
    };
    let measure = Measure::new(&mut builder, &tables)?;
    if tables.drop_frames != 0 {
        builder.note("functions that the profile wants to be left out (drop_frames) are kept");
    }
    let mut parser = Parser {
        builder,
        tables: &tables,
        stacks,
        known,
        measure,
        frames: Vec::new(),
    };
    // Its lists are used for all samples.
    let mut sample = proto::Sample::default();
    for (number, entry) in (1..).zip(tables.samples()) {
        let bytes = entry.map_err(|error| parser.builder.invalid(error))?;
        parser
            .builder
            .decode(&mut sample, "sample", number, bytes)?;
        parser.sample(&sample, number)?;
    }
    // Pyroscope writes the time of the profile as its length when it converts recordings of Java's Flight Recorder.
    let has_duration = tables.duration_ns > 0 && tables.duration_ns != tables.time_ns;
    let duration_ns = u64::try_from(tables.duration_ns)
        .ok()
        .filter(|_| has_duration);
    let time = (tables.time_ns > 0).then(|| Timestamp::from_unix_ns(tables.time_ns));
    // Without a duration, the time is that at which the profile was written.
    let length_ns = duration_ns.unwrap_or_else(|| unknown_length_ns(parser.builder.total()));
    let started_at = match duration_ns {
        Some(_) => time,
        None => time.map(|time| time.shifted(-length_ns.cast_signed())),
    };
    parser.builder.finish(Times {
        started_at,
        duration_ns: Some(length_ns),
    })
}

/// The length of a profile that does not say it, such as those of Go's locks, which have all time since the program's
/// start. The sum over all threads says nothing about it, except that they cannot be more than a process can have.
fn unknown_length_ns(total_ns: u64) -> u64 {
    const LENGTH_MAX_NS: u64 = 1_000_000_000;
    const THREADS_MAX: u64 = 1 << 15;
    total_ns.min(LENGTH_MAX_NS).max(total_ns / THREADS_MAX)
}

/// A field of a message.
pub(super) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Of a type that pprof does not use.
    Other,
}

/// The fields of a message, in their order. Ends after an error.
pub(super) struct Fields<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// The content of the fields with this tag.
    fn of(message: &'a [u8], wanted: u32) -> impl Iterator<Item = Result<&'a [u8], String>> {
        Fields { rest: message }.filter_map(move |field| match field {
            Ok((tag, Value::Bytes(bytes))) if tag == wanted => Some(Ok(bytes)),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        })
    }

    fn field(&mut self) -> Result<(u32, Value<'a>), String> {
        let cut = || "the message is truncated".to_owned();
        let (tag, kind) = decode_key(&mut self.rest).map_err(|error| error.to_string())?;
        let mut take = |length: usize| {
            let (bytes, rest) = self.rest.split_at_checked(length).ok_or_else(cut)?;
            self.rest = rest;
            Ok::<_, String>(bytes)
        };
        let value = match kind {
            WireType::ThirtyTwoBit => take(4).map(|_| Value::Other)?,
            WireType::SixtyFourBit => take(8).map(|_| Value::Other)?,
            WireType::Varint => {
                Value::Number(decode_varint(&mut self.rest).map_err(|error| error.to_string())?)
            }
            WireType::LengthDelimited => {
                let length = decode_varint(&mut self.rest).map_err(|error| error.to_string())?;
                let length = usize::try_from(length).map_err(|_| cut())?;
                let (bytes, rest) = self.rest.split_at_checked(length).ok_or_else(cut)?;
                self.rest = rest;
                Value::Bytes(bytes)
            }
            WireType::StartGroup | WireType::EndGroup => {
                return Err(format!("field {tag} is a group, which pprof does not have"));
            }
        };
        Ok((tag, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

impl Builder<'_> {
    /// Decodes an entry of a table.
    fn decoded<T: Message + Default>(
        &self,
        what: &str,
        number: usize,
        bytes: &[u8],
    ) -> Result<T, ImportError> {
        let mut message = T::default();
        self.decode(&mut message, what, number, bytes)?;
        Ok(message)
    }

    /// Decodes an entry of a table into a message with an earlier one, whose memory is used again.
    fn decode<T: Message>(
        &self,
        message: &mut T,
        what: &str,
        number: usize,
        bytes: &[u8],
    ) -> Result<(), ImportError> {
        if bytes.len() > ENTRY_BYTES_MAX {
            let what = "too many bytes in a sample, location or function";
            return Err(ImportError::TooMany {
                what,
                limit: ENTRY_BYTES_MAX,
            });
        }
        message.clear();
        message
            .merge(bytes)
            .map_err(|error| self.invalid(format!("{what} {number}: {error}")))
    }
}

/// All but the samples.
#[derive(Default)]
struct Tables<'a> {
    texts: Vec<Cow<'a, str>>,
    types: Vec<proto::ValueType>,
    functions: Numbered<proto::Function>,
    mappings: Numbered<proto::Mapping>,
    /// Encoded.
    locations: Vec<&'a [u8]>,
    /// The part of the message that has all samples, and mostly nothing else.
    with_samples: &'a [u8],
    time_ns: i64,
    duration_ns: i64,
    period_type: Option<proto::ValueType>,
    period: i64,
    default_type: i64,
    /// The text of a pattern.
    drop_frames: u64,
}

impl<'a> Tables<'a> {
    fn read(builder: &Builder<'_>, content: &'a [u8]) -> Result<Tables<'a>, ImportError> {
        let mut tables = Tables::default();
        let mut fields = Fields { rest: content };
        let mut samples: Option<Range<usize>> = None;
        loop {
            let start = content.len() - fields.rest.len();
            let Some(field) = fields.next() else { break };
            match field.map_err(|error| builder.invalid(error))? {
                (2, Value::Bytes(_)) => {
                    let end = content.len() - fields.rest.len();
                    samples.get_or_insert(start..end).end = end;
                }
                (tag, Value::Bytes(bytes)) => tables.entry(builder, tag, bytes)?,
                (7, Value::Number(number)) => tables.drop_frames = number,
                (9, Value::Number(number)) => tables.time_ns = number.cast_signed(),
                (10, Value::Number(number)) => tables.duration_ns = number.cast_signed(),
                (12, Value::Number(number)) => tables.period = number.cast_signed(),
                (14, Value::Number(number)) => tables.default_type = number.cast_signed(),
                _ => {}
            }
        }
        if tables.types.is_empty() {
            return Err(match samples {
                Some(_) => builder.invalid("it has no types of samples"),
                None => ImportError::Empty {
                    format: builder.format,
                },
            });
        }
        tables.with_samples = &content[samples.unwrap_or_default()];
        tables.demangle()?;
        Ok(tables)
    }

    /// Names functions as in the source, like `go tool pprof`. Texts of labels and files stay as they are.
    fn demangle(&mut self) -> Result<(), ImportError> {
        // By index of the linker's name.
        let mut demangled: KeyedMap<i64, i64> = KeyedMap::default();
        let mut names_bytes = 0;
        for function in self.functions.values_mut() {
            let texts = &self.texts;
            let text = |index: i64| {
                usize::try_from(index)
                    .ok()
                    .and_then(|index| texts.get(index))
            };
            if function.name == 0 || text(function.name).is_some_and(|name| name.is_empty()) {
                function.name = function.system_name;
            }
            if let Some(known) = demangled.get(&function.name) {
                function.name = *known;
                continue;
            }
            let Some(name) = text(function.name).and_then(|name| demangled_name(name)) else {
                continue;
            };
            names_bytes += name.len();
            if names_bytes > NAMES_BYTES_MAX {
                return Err(ImportError::TOO_MANY_NAMES);
            }
            let index = self.texts.len() as i64;
            self.texts.push(Cow::Owned(name));
            demangled.insert(function.name, index);
            function.name = index;
        }
        Ok(())
    }

    /// The samples, encoded.
    fn samples(&self) -> impl Iterator<Item = Result<&'a [u8], String>> {
        Fields::of(self.with_samples, 2)
    }

    fn entry(
        &mut self,
        builder: &Builder<'_>,
        tag: u32,
        bytes: &'a [u8],
    ) -> Result<(), ImportError> {
        match tag {
            1 => {
                check_table("too many types of samples", self.types.len())?;
                self.types
                    .push(builder.decoded("sample type", self.types.len() + 1, bytes)?);
            }
            3 => {
                check_table("too many modules", self.mappings.len())?;
                let number = self.mappings.len() + 1;
                let mapping: proto::Mapping = builder.decoded("mapping", number, bytes)?;
                self.mappings.insert(mapping.id, mapping);
            }
            4 => {
                check_table("too many locations", self.locations.len())?;
                self.locations.push(bytes);
            }
            5 => {
                check_table("too many functions", self.functions.len())?;
                let number = self.functions.len() + 1;
                let function: proto::Function = builder.decoded("function", number, bytes)?;
                self.functions.insert(function.id, function);
            }
            6 => {
                check_table("too many texts", self.texts.len())?;
                // Valid text is checked by words, and searched for invalid bytes one by one.
                let text = str::from_utf8(bytes).map(Cow::Borrowed);
                self.texts
                    .push(text.unwrap_or_else(|_| String::from_utf8_lossy(bytes)));
            }
            11 => self.period_type = Some(builder.decoded("period type", 1, bytes)?),
            _ => {}
        }
        Ok(())
    }

    fn text(&self, builder: &Builder<'_>, index: i64) -> Result<&str, ImportError> {
        if index == 0 {
            // Always the empty text, even in an empty table.
            return Ok("");
        }
        let text = usize::try_from(index)
            .ok()
            .and_then(|index| self.texts.get(index));
        text.map(AsRef::as_ref).ok_or_else(|| {
            let count = self.texts.len();
            builder.invalid(format!("text {index} is outside of the table of {count}"))
        })
    }
}

struct Parser<'a, 't> {
    builder: Builder<'a>,
    tables: &'t Tables<'t>,
    stacks: Stacks<'t>,
    known: Option<KnownStacks<'t>>,
    measure: Measure<'t>,
    frames: Vec<FrameId>,
}

/// Where the time of a sample is.
struct SampleStack {
    node: NodeId,
    thread: NodeId,
    /// Whether these are nodes of the known tables.
    is_known: bool,
}

impl<'t> Parser<'_, 't> {
    fn sample(&mut self, sample: &proto::Sample, number: usize) -> Result<(), ImportError> {
        let values = sample.value.len();
        let types = self.tables.types.len();
        if values != types {
            let reason = format!("sample {number} has {values} values for {types} types");
            return Err(self.builder.invalid(reason));
        }
        // Node's profilers write such samples.
        if sample.value.iter().all(|value| *value == 0) {
            return Ok(());
        }
        let labels = self.labels(sample)?;
        let weights = self
            .measure
            .weights(&self.builder, &sample.value, number, labels.state)?;
        if weights.iter().all(|(_, weight)| *weight == 0) {
            return Ok(());
        }
        let SampleStack {
            node,
            thread,
            is_known,
        } = self.stack(sample, number, &labels)?;
        let label_set = self.builder.label_set(labels.others);
        for (state, weight) in weights {
            let sample = Sample {
                node,
                thread,
                state,
                weight,
                at_ns: 0,
            };
            if is_known {
                self.builder.add_known(sample, label_set)?;
            } else {
                self.builder.add_labeled(sample, label_set)?;
            }
        }
        Ok(())
    }

    fn stack(
        &mut self,
        sample: &proto::Sample,
        number: usize,
        labels: &SampleLabels<'t>,
    ) -> Result<SampleStack, ImportError> {
        for id in &sample.location_id {
            if !self.stacks.has(*id) {
                return Err(self.builder.invalid(format!(
                    "sample {number} names location {id}, which does not exist"
                )));
            }
        }
        let known = self.known.as_mut();
        let found = known.and_then(|known| known.find(&self.builder, sample, labels));
        if let Some(stack) = found {
            return Ok(stack);
        }
        self.frames.clear();
        for id in sample.location_id.iter().rev() {
            let frames = self.stacks.interned(*id, &mut self.builder)?;
            self.frames.extend_from_slice(frames);
        }
        // Another collector sends the time of a task without a stack so. Below callers it is a name.
        if matches!(self.frames[..], [only] if self.builder.is_no_stack(only)) {
            self.frames.clear();
        }
        let top = self.builder.top(labels.task, labels.phase)?;
        Ok(SampleStack {
            node: self.builder.stack(top, &self.frames)?,
            thread: self
                .builder
                .thread(top, labels.thread.unwrap_or_default(), 0)?,
            is_known: false,
        })
    }

    fn labels(&mut self, sample: &proto::Sample) -> Result<SampleLabels<'t>, ImportError> {
        let mut labels = SampleLabels::default();
        for label in &sample.label {
            let key = self.tables.text(&self.builder, label.key)?;
            let text = self.tables.text(&self.builder, label.text)?;
            let is_number = label.text == 0 && (label.number != 0 || label.number_unit != 0);
            labels.add(&mut self.builder, key, (!is_number).then_some(text));
        }
        Ok(labels)
    }
}
