//! The functions of a table of symbols by address, in 12 bytes each.

use profiler_core::limits::NAME_BYTES_MAX;

/// Bytes of an entry of a file's table of symbols.
pub const ENTRY_BYTES: usize = 24;
/// Most functions that are indexed; the largest programs known have about two million.
const FUNCTIONS_MAX: u64 = 8 << 20;
/// Code further than this from the preceding symbol without a size does not belong to it.
const UNSIZED_BYTES_MAX: u32 = 64 << 10;
/// Symbols before an address that are tried: one may end before it and lie within another.
const TRIED_MAX: usize = 8;
/// Symbols of one function that are compared by name.
const ALIASES_MAX: usize = 16;

const STT_NOTYPE: u8 = 0;
const STT_FUNC: u8 = 2;

/// A symbol of code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Symbol {
    /// The first address.
    pub start: u32,
    /// 0 if the table does not say, as for much assembly.
    pub bytes: u32,
    name: u32,
}

/// Functions in the order of their addresses.
#[derive(Debug, Default)]
pub struct SymbolIndex {
    symbols: Vec<Symbol>,
    /// Where sections end that have a symbol without a size, in rising order: it has no code behind its section, such as
    /// the stubs for functions of other modules behind `_init`.
    ends: Vec<u32>,
}

/// A table of symbols in a file.
pub trait SymbolTable {
    /// Number of entries.
    fn count(&self) -> u64;

    /// The entry with that number; `None` if it cannot be read.
    fn entry(&self, number: u64) -> Option<[u8; ENTRY_BYTES]>;

    /// The address at which the section with that index ends; `None` if it has no code.
    fn code_end(&self, section: u16) -> Option<u64>;

    /// The name at that offset, of at most so many bytes.
    fn name(&self, offset: u32, bytes_max: u64) -> Option<String>;
}

impl SymbolIndex {
    /// Reads the table; `None` if it cannot be read, or there is no memory for the index.
    #[must_use]
    pub fn read(table: &impl SymbolTable) -> Option<SymbolIndex> {
        let count = table.count().min(FUNCTIONS_MAX);
        // Counted first, because a growing table takes up to twice its memory.
        let mut functions = 0;
        for number in 0..count {
            functions += usize::from(code_symbol(&table.entry(number)?, table).is_some());
        }
        let mut symbols = Vec::new();
        // As many as sections at most.
        let mut ends = Vec::new();
        symbols.try_reserve_exact(functions).ok()?;
        for number in 0..count {
            let Some(CodeSymbol { symbol, end }) = code_symbol(&table.entry(number)?, table) else {
                continue;
            };
            symbols.push(symbol);
            if symbol.bytes == 0 {
                if let Err(index) = ends.binary_search(&end) {
                    ends.insert(index, end);
                }
            }
        }
        symbols.sort_unstable();
        Some(SymbolIndex { symbols, ends })
    }

    /// The name of the function that contains `address`, as the table has it.
    pub fn name_of(&self, address: u64, table: &impl SymbolTable) -> Option<String> {
        let found = self.find(u32::try_from(address).ok()?)?;
        let first = self
            .symbols
            .partition_point(|symbol| symbol.start < found.start);
        let aliases = self.symbols[first..]
            .iter()
            .take(ALIASES_MAX)
            .filter(|symbol| symbol.start == found.start && symbol.bytes == found.bytes);
        let names = aliases.filter_map(|symbol| {
            let name = table.name(symbol.name, NAME_BYTES_MAX as u64)?;
            Some(unversioned(&name).to_owned()).filter(|name| !name.is_empty())
        });
        // `write` rather than `__write` and `__GI___libc_write`; but `__vdso_time`, because `time` is the
        // C library's.
        names.min_by_key(|name| {
            let underscores = name.bytes().take_while(|byte| *byte == b'_').count();
            (
                !name.starts_with("__vdso_"),
                underscores,
                name.len(),
                name.clone(),
            )
        })
    }

    /// Every address at which another symbol may begin to count.
    #[doc(hidden)]
    pub fn boundaries(&self) -> impl Iterator<Item = u32> {
        self.symbols
            .iter()
            .flat_map(|symbol| [symbol.start, self.end(*symbol)])
    }

    /// The symbol that counts at an address.
    #[doc(hidden)]
    #[must_use]
    pub fn find(&self, address: u32) -> Option<Symbol> {
        let after = self
            .symbols
            .partition_point(|symbol| symbol.start <= address);
        let before = &self.symbols[..after];
        let nearest = before.last()?;
        let mut tried = before.iter().rev().take(TRIED_MAX);
        let sized = tried.find(|symbol| address - symbol.start < symbol.bytes);
        let unsized_one = (nearest.bytes == 0)
            .then_some(nearest)
            .filter(|symbol| address < self.end(**symbol));
        sized.or(unsized_one).copied()
    }

    /// Where a symbol ends at the latest.
    fn end(&self, symbol: Symbol) -> u32 {
        if symbol.bytes > 0 {
            return symbol.start.saturating_add(symbol.bytes);
        }
        let end = symbol.start.saturating_add(UNSIZED_BYTES_MAX);
        let next = self.ends.partition_point(|end| *end <= symbol.start);
        self.ends
            .get(next)
            .map_or(end, |of_section| end.min(*of_section))
    }
}

/// `write@@GLIBC_2.2.5` is `write`: libraries keep old versions of a function.
fn unversioned(name: &str) -> &str {
    name.split_once('@').map_or(name, |(name, _)| name)
}

/// A symbol, and where its section ends.
struct CodeSymbol {
    symbol: Symbol,
    end: u32,
}

/// The symbol in an entry, if it is code. Tables of assembly often mark neither kind nor size.
fn code_symbol(entry: &[u8; ENTRY_BYTES], table: &impl SymbolTable) -> Option<CodeSymbol> {
    let kind = entry[4] & 0xf;
    let section = short(entry, 6)?;
    if section == 0 || !matches!(kind, STT_FUNC | STT_NOTYPE) {
        return None;
    }
    let end = table.code_end(section)?;
    let start = u32::try_from(word(entry, 8)?).ok()?;
    let bytes = u32::try_from(word(entry, 16)?).ok()?;
    let name = half(entry, 0)?;
    Some(CodeSymbol {
        symbol: Symbol { start, bytes, name },
        end: u32::try_from(end).unwrap_or(u32::MAX),
    })
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(start: u32, bytes: u32) -> Symbol {
        Symbol {
            start,
            bytes,
            name: start,
        }
    }

    #[test]
    fn an_address_is_in_the_sized_symbol_that_contains_it_or_in_a_near_unsized_one() {
        let symbols = vec![
            symbol(0x0c0, 0),
            symbol(0x100, 0x100),
            symbol(0x140, 0x10),
            symbol(0x200, 0),
            symbol(0x300, 0x10),
            symbol(0x400, 0),
        ];
        let ends = vec![0x0e0, 0x10_0000];
        let index = SymbolIndex { symbols, ends };
        check_start(&index, 0x0df, Some(0x0c0));
        check_start(&index, 0x0e0, None);
        check_start(&index, 0x0ff, None);
        check_start(&index, 0x13f, Some(0x100));
        check_start(&index, 0x14f, Some(0x140));
        check_start(&index, 0x150, Some(0x100));
        check_start(&index, 0x2ff, Some(0x200));
        check_start(&index, 0x30f, Some(0x300));
        check_start(&index, 0x310, None);
        check_start(&index, 0x400 + UNSIZED_BYTES_MAX - 1, Some(0x400));
        check_start(&index, 0x400 + UNSIZED_BYTES_MAX, None);
    }

    fn check_start(index: &SymbolIndex, address: u32, start: Option<u32>) {
        assert_eq!(
            index.find(address).map(|symbol| symbol.start),
            start,
            "{address:#x}"
        );
    }

    #[test]
    fn names_of_symbols_have_no_version() {
        assert_eq!(
            unversioned("clock_nanosleep@@GLIBC_2.17"),
            "clock_nanosleep"
        );
        assert_eq!(unversioned("memcpy@GLIBC_2.2.5"), "memcpy");
        assert_eq!(unversioned("_ZN1a5inner3gen17hc5424c1275e0932dE").len(), 35);
    }
}
