//! Modules: the program and its libraries.

use std::sync::Arc;

use super::file::FileIdentity;

/// The module that contained an address when it was sampled.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct CodeModule {
    /// Its file.
    pub path: Arc<str>,
    /// In hexadecimal digits; empty if it has none.
    pub build_id: Arc<str>,
    /// Its file when it was loaded, if it has no build id: another one may be at its path later.
    pub file: Option<FileIdentity>,
    /// Subtract it from an address to get the address in the file.
    pub base: u64,
}

/// Finds the build id in a module's notes: (name size, size, type, name, value), each padded to
/// four bytes.
#[must_use]
pub fn build_id_in(mut notes: &[u8]) -> Option<String> {
    const GNU_BUILD_ID: i32 = 3;
    while notes.len() >= 12 {
        let name_size = usize::try_from(read_i32(notes, 0)?).ok()?;
        let size = usize::try_from(read_i32(notes, 4)?).ok()?;
        let name = notes.get(12..)?.get(..name_size)?;
        let value_at = 12 + name_size.next_multiple_of(4);
        let value = notes.get(value_at..)?.get(..size)?;
        if read_i32(notes, 8)? == GNU_BUILD_ID && name == b"GNU\0" {
            return Some(value.iter().map(|byte| format!("{byte:02x}")).collect());
        }
        notes = notes.get(value_at + size.next_multiple_of(4)..)?;
    }
    None
}

fn read_i32(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_with_wrong_sizes_are_ignored() {
        let mut note = Vec::new();
        for word in [4, 2, 3] {
            note.extend(i32::to_le_bytes(word));
        }
        note.extend(b"GNU\0\xab\xcd\0\0");
        assert_eq!(build_id_in(&note), Some("abcd".to_owned()));
        note[4] = 200;
        assert_eq!(build_id_in(&note), None);
        note[0] = 255;
        assert_eq!(build_id_in(&note), None);
        assert_eq!(build_id_in(&[0; 40]), None);
    }
}
