//! The last bytes of a symbol file: what it is, and where its index is.

use super::lookup::SymbolFileError;
use super::{NAMING_VERSION, has_checksum};

/// The first and the last bytes of a symbol file.
pub(super) const MAGIC: [u8; 8] = *b"EMBSYMS\x01";
pub(super) const TRAILER_BYTES: usize = 128;
/// Where the trailer says whether the last text is the list of segments. Earlier versions have a zero there.
const HAS_SEGMENTS_AT: usize = BASE_AT - 2;
/// Where the trailer has the base, between the build id and the checksum.
const BASE_AT: usize = TRAILER_BYTES - 20;
/// Longest build id.
pub(super) const BUILD_ID_BYTES_MAX: usize = 64;

/// How much a symbol file tells.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum Detail {
    /// Functions that the dynamic linker knows.
    #[default]
    DynamicSymbols,
    /// All compiled functions.
    Symbols,
    /// Also files and lines. Inlined functions are missing, because split debug information is.
    CompiledLines,
    /// Also files, lines and inlined functions.
    Lines,
}

impl Detail {
    /// Its name in lists.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Detail::DynamicSymbols => "dynamic symbols",
            Detail::Symbols => "symbols",
            Detail::CompiledLines => "lines without inlined functions",
            Detail::Lines => "lines",
        }
    }

    /// By their number in a file.
    const NUMBERED: [Detail; 4] = [
        Detail::DynamicSymbols,
        Detail::Symbols,
        Detail::Lines,
        Detail::CompiledLines,
    ];

    fn of(number: u8) -> Option<Detail> {
        Detail::NUMBERED.get(usize::from(number)).copied()
    }

    fn number(self) -> u8 {
        match self {
            Detail::DynamicSymbols => 0,
            Detail::Symbols => 1,
            Detail::Lines => 2,
            Detail::CompiledLines => 3,
        }
    }
}

/// Facts about a symbol file.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Facts {
    /// The build id of the module, in hexadecimal.
    pub build_id: String,
    /// How much it tells.
    pub detail: Detail,
    /// Bytes of the file that it was made from.
    pub source_bytes: u64,
    /// Number of ranges of addresses.
    pub ranges: u32,
    /// Number of frames: a function at a line, with the frames that it is inlined into.
    pub frames: u32,
    /// Number of texts.
    pub texts: u32,
    /// Bytes of all texts.
    pub text_bytes: u32,
    /// The upper half of all addresses, which the ranges do not have: 0 but for code like the kernel's.
    pub base: u64,
    /// Whether it says which addresses the offsets in the module's file have.
    pub has_segments: bool,
}

impl Facts {
    /// How much the file tells, compared with others of its build.
    #[must_use]
    pub fn rank(&self) -> (Detail, bool) {
        (self.detail, self.has_segments)
    }
}

/// The trailer.
#[derive(Clone, Debug)]
pub(super) struct Trailer {
    pub(super) facts: Facts,
    pub(super) index_at: u64,
    pub(super) index_crc: u32,
}

impl Trailer {
    pub(super) fn to_bytes(&self) -> Option<[u8; TRAILER_BYTES]> {
        let Facts {
            build_id,
            detail,
            source_bytes,
            ranges,
            frames,
            texts,
            text_bytes,
            ..
        } = &self.facts;
        let id = bytes_of(build_id)?;
        let mut bytes = Vec::with_capacity(TRAILER_BYTES);
        for number in [
            NAMING_VERSION,
            *ranges,
            *frames,
            *texts,
            *text_bytes,
            self.index_crc,
        ] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.index_at.to_le_bytes());
        bytes.extend(source_bytes.to_le_bytes());
        bytes.extend([detail.number(), u8::try_from(id.len()).ok()?]);
        bytes.extend(&id);
        bytes.resize(BASE_AT, 0);
        bytes[HAS_SEGMENTS_AT] = u8::from(self.facts.has_segments);
        bytes.extend(self.facts.base.to_le_bytes());
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        bytes.extend(MAGIC);
        bytes.try_into().ok()
    }

    pub(super) fn parse(bytes: &[u8; TRAILER_BYTES]) -> Result<Trailer, SymbolFileError> {
        if bytes[TRAILER_BYTES - 8..] != MAGIC {
            return Err(SymbolFileError::Truncated);
        }
        if !has_checksum(
            &bytes[..TRAILER_BYTES - 12],
            number_at(bytes, TRAILER_BYTES - 12),
        ) {
            return Err(SymbolFileError::Checksum { part: "trailer" });
        }
        if number_at(bytes, 0) != NAMING_VERSION {
            return Err(SymbolFileError::Version {
                found: number_at(bytes, 0),
            });
        }
        let id = bytes
            .get(42..42 + usize::from(bytes[41]))
            .filter(|id| is_length(id.len()))
            .ok_or(SymbolFileError::Contradiction { part: "build id" })?;
        let detail =
            Detail::of(bytes[40]).ok_or(SymbolFileError::Contradiction { part: "detail" })?;
        let facts = Facts {
            build_id: id.iter().map(|byte| format!("{byte:02x}")).collect(),
            detail,
            source_bytes: long_at(bytes, 32),
            ranges: number_at(bytes, 4),
            frames: number_at(bytes, 8),
            texts: number_at(bytes, 12),
            text_bytes: number_at(bytes, 16),
            base: long_at(bytes, BASE_AT),
            has_segments: bytes[HAS_SEGMENTS_AT] != 0,
        };
        Ok(Trailer {
            facts,
            index_at: long_at(bytes, 24),
            index_crc: number_at(bytes, 20),
        })
    }
}

fn number_at(bytes: &[u8], at: usize) -> u32 {
    let part = bytes[at..].first_chunk().copied().unwrap_or_default();
    u32::from_le_bytes(part)
}

fn long_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(number_at(bytes, at)) | u64::from(number_at(bytes, at + 4)) << 32
}

const fn is_length(bytes: usize) -> bool {
    4 <= bytes && bytes <= BUILD_ID_BYTES_MAX
}

/// The bytes of a build id in lowercase hexadecimal; `None` if it is none.
fn bytes_of(build_id: &str) -> Option<Vec<u8>> {
    if !build_id.is_ascii() || !build_id.len().is_multiple_of(2) || !is_length(build_id.len() / 2) {
        return None;
    }
    let pairs = (0..build_id.len())
        .step_by(2)
        .map(|at| &build_id[at..at + 2]);
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).ok())
        .collect()
}
