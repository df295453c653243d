//! Recordings for tests: a writer with the types of the JDK and of async-profiler.

use std::collections::BTreeMap;

use crate::Integers;
use crate::chunk::{CONSTANTS, HEADER_BYTES, MAGIC, METADATA};

/// A field of a type.
#[derive(Clone, Copy, Debug)]
struct TestField {
    name: &'static str,
    kind: &'static str,
    form: Form,
}

/// How a value is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Value,
    /// As the number of a constant.
    Constant,
    /// As a count and that many values.
    List,
}

/// A value of a field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Datum {
    /// An integer, the number of a constant, or 0 and 1 for a truth value.
    Number(u64),
    /// A text.
    Text(String),
    /// The number of a constant string.
    StringConstant(u64),
    /// Elements, each with its fields in their order.
    List(Vec<Vec<Datum>>),
}

/// A frame of a stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TestFrame<'f> {
    /// The class, with `/` between its parts; the library of native code.
    pub class: &'f str,
    /// The method.
    pub method: &'f str,
    /// The types of its parameters; `()L;` is native code of async-profiler.
    pub descriptor: &'f str,
    /// The line.
    pub line: u64,
    /// `Interpreted`, `JIT compiled`, `Inlined`, `Native`, `C++` or `Kernel`.
    pub kind: &'f str,
}

/// A chunk under construction.
#[derive(Clone, Debug)]
pub struct TestChunk {
    /// How integers are written.
    pub integers: Integers,
    /// Start in nanoseconds since 1970.
    pub start_ns: u64,
    /// Its length.
    pub duration_ns: u64,
    /// Start in ticks.
    pub start_ticks: u64,
    /// Ticks in a second.
    pub ticks_per_second: u64,
    types: Vec<(&'static str, Vec<TestField>)>,
    /// Values by type and number.
    constants: BTreeMap<(&'static str, u64), Vec<Datum>>,
    /// Types whose constants are left out.
    missing: Vec<&'static str>,
    events: Vec<u8>,
    /// Types without fields and name that the metadata has in addition.
    pub empty_types: u64,
    /// Texts without content that the metadata has in addition.
    pub unused_texts: u64,
}

/// The types of a chunk and their fields: `name:type`, of constants `name:@type`, of lists `name:*type`.
const TYPES: [(&str, &str); 24] = [
    ("boolean", ""),
    ("byte", ""),
    ("short", ""),
    ("char", ""),
    ("int", ""),
    ("long", ""),
    ("float", ""),
    ("double", ""),
    ("java.lang.String", ""),
    ("java.lang.Class", "name:@jdk.types.Symbol modifiers:int"),
    (
        "java.lang.Thread",
        "osName:java.lang.String osThreadId:long javaName:java.lang.String javaThreadId:long",
    ),
    ("jdk.types.FrameType", "description:java.lang.String"),
    ("jdk.types.ThreadState", "name:java.lang.String"),
    ("jdk.types.Symbol", "string:java.lang.String"),
    (
        "jdk.types.Method",
        "type:@java.lang.Class name:@jdk.types.Symbol descriptor:@jdk.types.Symbol modifiers:int hidden:boolean",
    ),
    (
        "jdk.types.StackFrame",
        "method:@jdk.types.Method lineNumber:int bytecodeIndex:int type:@jdk.types.FrameType",
    ),
    (
        "jdk.types.StackTrace",
        "truncated:boolean frames:*jdk.types.StackFrame",
    ),
    (
        "jdk.ActiveSetting",
        "startTime:long duration:long eventThread:@java.lang.Thread stackTrace:@jdk.types.StackTrace \
         id:long name:java.lang.String value:java.lang.String",
    ),
    ("jdk.ActiveRecording", "startTime:long id:long"),
    (
        "jdk.ExecutionSample",
        "startTime:long sampledThread:@java.lang.Thread stackTrace:@jdk.types.StackTrace \
         state:@jdk.types.ThreadState contextId:long",
    ),
    (
        "jdk.NativeMethodSample",
        "startTime:long sampledThread:@java.lang.Thread stackTrace:@jdk.types.StackTrace \
         state:@jdk.types.ThreadState",
    ),
    (
        "profiler.WallClockSample",
        "startTime:long sampledThread:@java.lang.Thread stackTrace:@jdk.types.StackTrace \
         state:@jdk.types.ThreadState samples:int",
    ),
    (
        "jdk.ObjectAllocationInNewTLAB",
        "startTime:long eventThread:@java.lang.Thread stackTrace:@jdk.types.StackTrace allocationSize:long",
    ),
    ("jdk.DataLoss", "startTime:long amount:long total:long"),
];

/// The fields of an event with a length.
const WAIT: &str = "startTime:long duration:long eventThread:@java.lang.Thread \
                    stackTrace:@jdk.types.StackTrace contextId:long";

/// Events with a length, which have the same fields.
pub const WAITS: [&str; 9] = [
    "jdk.JavaMonitorEnter",
    "jdk.JavaMonitorWait",
    "jdk.ThreadPark",
    "jdk.ThreadSleep",
    "jdk.SocketRead",
    "jdk.SocketWrite",
    "jdk.FileRead",
    "jdk.FileWrite",
    "jdk.FileForce",
];

fn standard_types() -> Vec<(&'static str, Vec<TestField>)> {
    let waits = WAITS.iter().map(|name| (*name, WAIT));
    let types = TYPES.iter().copied().chain(waits);
    types.map(|(name, text)| (name, fields(text))).collect()
}

/// The fields that a text of [`TestChunk::set_type`] describes.
fn fields(text: &'static str) -> Vec<TestField> {
    let field = |word: &'static str| {
        let (name, kind) = word.split_once(':').expect("a field has a type");
        let (form, kind) = match kind.as_bytes()[0] {
            b'@' => (Form::Constant, &kind[1..]),
            b'*' => (Form::List, &kind[1..]),
            _ => (Form::Value, kind),
        };
        TestField { name, kind, form }
    };
    text.split_whitespace().map(field).collect()
}

impl TestChunk {
    /// A chunk of 10 s from Unix second 1,000,000 on, whose ticks are nanoseconds since its start.
    #[must_use]
    pub fn new(integers: Integers) -> TestChunk {
        TestChunk {
            integers,
            start_ns: 1_000_000_000_000_000,
            duration_ns: 10_000_000_000,
            start_ticks: 0,
            ticks_per_second: 1_000_000_000,
            types: standard_types(),
            constants: BTreeMap::new(),
            missing: Vec::new(),
            events: Vec::new(),
            empty_types: 0,
            unused_texts: 0,
        }
    }

    /// Adds a type, or replaces the fields of one: `name:type`, of constants `name:@type`, of lists `name:*type`.
    pub fn set_type(&mut self, name: &'static str, text: &'static str) {
        self.types.retain(|(known, _)| *known != name);
        self.types.push((name, fields(text)));
    }

    /// Leaves out the constants of a type.
    pub fn leave_out(&mut self, kind: &'static str) {
        self.missing.push(kind);
    }

    /// The id of a type.
    ///
    /// # Panics
    /// If it is unknown.
    #[must_use]
    pub fn type_id(&self, name: &str) -> u64 {
        let index = self.types.iter().position(|(known, _)| *known == name);
        // 0 and 1 are metadata and constants.
        index.expect("the type is known") as u64 + 20
    }

    /// Adds a constant if it is new. Returns its number.
    pub fn constant(&mut self, kind: &'static str, fields: Vec<Datum>) -> u64 {
        let of_kind = self.constants.range((kind, 0)..=(kind, u64::MAX));
        let mut key = 0;
        for ((_, known), value) in of_kind {
            if *value == fields {
                return *known;
            }
            key = *known;
        }
        self.constants.insert((kind, key + 1), fields);
        key + 1
    }

    fn symbol(&mut self, text: &str) -> Datum {
        let text = vec![Datum::Text(text.to_owned())];
        Datum::Number(self.constant("jdk.types.Symbol", text))
    }

    /// Adds a thread, whose name is a constant string.
    pub fn thread(&mut self, name: &str, id: u64) -> Datum {
        let text = self.constant("java.lang.String", vec![Datum::Text(name.to_owned())]);
        let fields = vec![
            Datum::Text(format!("os {name}")),
            Datum::Number(id),
            Datum::StringConstant(text),
            Datum::Number(id + 1_000),
        ];
        Datum::Number(self.constant("java.lang.Thread", fields))
    }

    /// Adds a state of threads.
    pub fn state(&mut self, name: &str) -> Datum {
        let text = vec![Datum::Text(name.to_owned())];
        Datum::Number(self.constant("jdk.types.ThreadState", text))
    }

    /// Adds a stack of interpreted methods, innermost first: `Class.method:line`.
    pub fn stack(&mut self, frames: &[&str]) -> Datum {
        let frames: Vec<TestFrame<'_>> = frames.iter().map(|text| java_frame(text)).collect();
        self.stack_of(&frames, false)
    }

    /// Adds a stack, innermost frame first.
    pub fn stack_of(&mut self, frames: &[TestFrame<'_>], is_truncated: bool) -> Datum {
        let mut list = Vec::new();
        for frame in frames {
            let name = self.symbol(frame.class);
            let class = self.constant("java.lang.Class", vec![name, Datum::Number(1)]);
            let method = vec![
                Datum::Number(class),
                self.symbol(frame.method),
                self.symbol(frame.descriptor),
                Datum::Number(0),
                Datum::Number(0),
            ];
            let method = self.constant("jdk.types.Method", method);
            let kind = vec![Datum::Text(frame.kind.to_owned())];
            let kind = self.constant("jdk.types.FrameType", kind);
            list.push(vec![
                Datum::Number(method),
                Datum::Number(frame.line),
                Datum::Number(0),
                Datum::Number(kind),
            ]);
        }
        let fields = vec![Datum::Number(is_truncated.into()), Datum::List(list)];
        Datum::Number(self.constant("jdk.types.StackTrace", fields))
    }

    /// Adds an event. Fields without a value are 0 or empty.
    pub fn event(&mut self, name: &str, values: &[(&str, Datum)]) {
        let mut writer = self.writer();
        writer.long(self.type_id(name));
        let zero = Datum::Number(0);
        let (_, fields) = self
            .types
            .iter()
            .find(|(known, _)| *known == name)
            .expect("the type is known");
        for field in fields {
            let given = values.iter().find(|(key, _)| *key == field.name);
            self.write(&mut writer, field, given.map_or(&zero, |(_, value)| value));
        }
        self.events.extend(writer.sized());
    }

    /// Adds an event with these bytes as its values.
    pub fn event_of_bytes(&mut self, name: &str, bytes: &[u8]) {
        let mut writer = self.writer();
        writer.long(self.type_id(name));
        writer.bytes.extend(bytes);
        self.events.extend(writer.sized());
    }

    /// Adds constants with the numbers from 0 on, each with these bytes as its value.
    pub fn add_raw_constants(&mut self, kind: &str, count: u64, value: &[u8]) {
        let mut writer = self.pools(1);
        writer.long(self.type_id(kind));
        writer.integer(count, 4);
        for key in 0..count {
            writer.long(key);
            writer.bytes.extend(value);
        }
        self.events.extend(writer.sized());
    }

    /// The start of an event with pools of constants.
    fn pools(&self, count: usize) -> Writer {
        let mut writer = self.writer();
        writer.long(CONSTANTS);
        // Start, duration, distance to the constants before.
        for number in [self.start_ticks, 0, 0] {
            writer.long(number);
        }
        writer.bytes.push(1);
        writer.integer(count as u64, 4);
        writer
    }

    /// Adds a setting of an event.
    pub fn setting(&mut self, event: &str, name: &str, value: &str) {
        let id = Datum::Number(self.type_id(event));
        let [name, value] = [name, value].map(|text| Datum::Text(text.to_owned()));
        self.event(
            "jdk.ActiveSetting",
            &[("id", id), ("name", name), ("value", value)],
        );
    }

    fn writer(&self) -> Writer {
        Writer {
            integers: self.integers,
            bytes: Vec::new(),
        }
    }

    fn write(&self, writer: &mut Writer, field: &TestField, datum: &Datum) {
        match (field.form, datum) {
            (Form::Constant, Datum::Number(key)) => writer.long(*key),
            (Form::List, Datum::List(elements)) => {
                writer.integer(elements.len() as u64, 4);
                let fields = self.fields(field.kind);
                for element in elements {
                    if let ([], [text]) = (fields, &element[..]) {
                        self.write_value(writer, field.kind, text);
                    }
                    for (field, datum) in fields.iter().zip(element) {
                        self.write(writer, field, datum);
                    }
                }
            }
            (Form::List, _) => writer.integer(0, 4),
            _ => self.write_value(writer, field.kind, datum),
        }
    }

    fn write_value(&self, writer: &mut Writer, kind: &str, datum: &Datum) {
        match (kind, datum) {
            ("java.lang.String", Datum::Text(text)) => writer.text(text),
            ("java.lang.String", Datum::StringConstant(key)) => {
                writer.bytes.push(2);
                writer.long(*key);
            }
            ("java.lang.String", _) => writer.bytes.push(0),
            ("boolean" | "byte", Datum::Number(number)) => writer.bytes.push(*number as u8),
            ("short" | "char", Datum::Number(number)) => writer.integer(*number, 2),
            ("int", Datum::Number(number)) => writer.integer(*number, 4),
            ("long", Datum::Number(number)) => writer.long(*number),
            ("float", _) => writer.bytes.extend(1_f32.to_be_bytes()),
            ("double", _) => writer.bytes.extend(1_f64.to_be_bytes()),
            (kind, _) => {
                for field in self.fields(kind) {
                    self.write(writer, field, &Datum::Number(0));
                }
            }
        }
    }

    fn fields(&self, name: &str) -> &[TestField] {
        let found = self.types.iter().find(|(known, _)| *known == name);
        &found.expect("the type is known").1
    }

    /// The chunk: metadata first, as async-profiler has it, if integers are compressed; else last, as the JDK.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let metadata = self.metadata();
        let constants = self.constant_pools();
        let is_first = self.integers == Integers::Compressed;
        let parts = if is_first {
            [&metadata, &self.events, &constants]
        } else {
            [&self.events, &constants, &metadata]
        };
        let content = parts.map(Vec::as_slice).concat();
        let bytes = (HEADER_BYTES + content.len()) as u64;
        let metadata_at = if is_first {
            HEADER_BYTES as u64
        } else {
            bytes - metadata.len() as u64
        };
        let constants_at = if is_first {
            bytes - constants.len() as u64
        } else {
            metadata_at - constants.len() as u64
        };
        let mut chunk = MAGIC.to_vec();
        chunk.extend([0, 2, 0, 1]);
        for number in [
            bytes,
            constants_at,
            metadata_at,
            self.start_ns,
            self.duration_ns,
            self.start_ticks,
            self.ticks_per_second,
        ] {
            chunk.extend(number.to_be_bytes());
        }
        chunk.extend(u32::from(is_first).to_be_bytes());
        chunk.extend(content);
        chunk
    }

    fn constant_pools(&self) -> Vec<u8> {
        let is_written = |kind: &&'static str| !self.missing.contains(kind);
        let mut kinds: Vec<&'static str> = self.constants.keys().map(|(kind, _)| *kind).collect();
        kinds.dedup();
        kinds.retain(is_written);
        let mut writer = self.pools(kinds.len());
        for kind in kinds {
            let of_kind = || self.constants.range((kind, 0)..=(kind, u64::MAX));
            writer.long(self.type_id(kind));
            writer.integer(of_kind().count() as u64, 4);
            for ((_, key), values) in of_kind() {
                writer.long(*key);
                if let ("java.lang.String", [text]) = (kind, &values[..]) {
                    self.write_value(&mut writer, kind, text);
                }
                for (field, datum) in self.fields(kind).iter().zip(values) {
                    self.write(&mut writer, field, datum);
                }
            }
        }
        writer.sized()
    }

    fn metadata(&self) -> Vec<u8> {
        let mut texts = Texts::default();
        let mut tree = self.writer();
        let root = texts.number("root");
        let metadata = texts.number("metadata");
        let types = self.types.len() as u64 + self.empty_types;
        for number in [root, 0, 1, metadata, 0, types] {
            tree.integer(number, 4);
        }
        for (name, fields) in &self.types {
            let id = self.type_id(name).to_string();
            let attributes = [("name", *name), ("id", &*id)];
            tree.element(&mut texts, "class", &attributes, fields.len());
            for field in fields {
                let kind = self.type_id(field.kind).to_string();
                let form = match field.form {
                    Form::Value => ("label", "a value"),
                    Form::Constant => ("constantPool", "true"),
                    Form::List => ("dimension", "1"),
                };
                let attributes = [("name", field.name), ("class", &*kind), form];
                tree.element(&mut texts, "field", &attributes, 0);
            }
        }
        for _ in 0..self.empty_types {
            tree.element(&mut texts, "class", &[], 0);
        }
        let mut writer = self.writer();
        writer.long(METADATA);
        for number in [self.start_ticks, 0, 1] {
            writer.long(number);
        }
        writer.integer(texts.texts.len() as u64 + self.unused_texts, 4);
        for text in &texts.texts {
            // As the JDK writes the texts of metadata.
            writer.units(text);
        }
        writer.bytes.extend(vec![0; self.unused_texts as usize]);
        writer.bytes.extend(tree.bytes);
        writer.sized()
    }
}

/// `Class.method:line`, interpreted.
fn java_frame(text: &str) -> TestFrame<'_> {
    let (name, line) = text.split_once(':').unwrap_or((text, "0"));
    let (class, method) = name.rsplit_once('.').unwrap_or(("", name));
    TestFrame {
        class,
        method,
        descriptor: "()V",
        line: line.parse().expect("a line is a number"),
        kind: "Interpreted",
    }
}

/// The texts of the metadata.
#[derive(Default)]
struct Texts {
    texts: Vec<String>,
}

impl Texts {
    fn number(&mut self, text: &str) -> u64 {
        let known = self.texts.iter().position(|known| known == text);
        known.unwrap_or_else(|| {
            self.texts.push(text.to_owned());
            self.texts.len() - 1
        }) as u64
    }
}

/// The bytes of an event.
struct Writer {
    integers: Integers,
    bytes: Vec<u8>,
}

impl Writer {
    fn integer(&mut self, number: u64, width: usize) {
        if self.integers == Integers::Raw {
            self.bytes.extend(&number.to_be_bytes()[8 - width..]);
            return;
        }
        let mut rest = number;
        for _ in 0..8 {
            if rest < 0x80 {
                self.bytes.push(rest as u8);
                return;
            }
            self.bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.bytes.push(rest as u8);
    }

    fn long(&mut self, number: u64) {
        self.integer(number, 8);
    }

    /// In the encoding that suits the text: none, UTF-8 or Latin-1.
    fn text(&mut self, text: &str) {
        match text.len() {
            0 => self.bytes.push(1),
            length if length % 2 == 0 || !text.is_ascii() => {
                self.bytes.push(3);
                self.integer(length as u64, 4);
                self.bytes.extend(text.as_bytes());
            }
            length => {
                self.bytes.push(5);
                self.integer(length as u64, 4);
                self.bytes.extend(text.as_bytes());
            }
        }
    }

    fn units(&mut self, text: &str) {
        self.bytes.push(4);
        self.integer(text.encode_utf16().count() as u64, 4);
        for unit in text.encode_utf16() {
            self.integer(unit.into(), 2);
        }
    }

    fn element(
        &mut self,
        texts: &mut Texts,
        kind: &str,
        attributes: &[(&str, &str)],
        children: usize,
    ) {
        self.integer(texts.number(kind), 4);
        self.integer(attributes.len() as u64, 4);
        for (key, value) in attributes {
            self.integer(texts.number(key), 4);
            self.integer(texts.number(value), 4);
        }
        self.integer(children as u64, 4);
    }

    /// The bytes with their size before them, which takes four bytes, as in the JDK.
    fn sized(self) -> Vec<u8> {
        let size = self.bytes.len() as u32 + 4;
        let mut sized = match self.integers {
            Integers::Raw => size.to_be_bytes().to_vec(),
            Integers::Compressed => {
                let padded = |shift: u32| (size >> shift) as u8 & 0x7f;
                vec![
                    padded(0) | 0x80,
                    padded(7) | 0x80,
                    padded(14) | 0x80,
                    padded(21),
                ]
            }
        };
        sized.extend(self.bytes);
        sized
    }
}
