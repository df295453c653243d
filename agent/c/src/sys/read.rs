//! Texts, lists and structs of the program.

use std::ffi::{CStr, c_char};
use std::mem::{self, MaybeUninit};
use std::ptr;
use std::slice;

use super::exports::EmberlineLabel;
use crate::call::{Failure, Status};
use crate::settings::{self, LIST_MAX, Label};

/// Structs of the interface that may grow: the first field is the size that the program knows, in bytes.
///
/// # Safety
/// The first field is a `usize`, and any bytes are a value.
pub(super) unsafe trait Growing {
    /// Its name in errors.
    const NAME: &'static str;
}

/// Returns a text; `None` for NULL. `of` names the argument in the error.
///
/// # Errors
/// If it is not UTF-8.
///
/// # Safety
/// `text` is NULL, or a text with a 0 at its end that stays as it is during the call.
pub(super) unsafe fn text<'a>(text: *const c_char, of: &str) -> Result<Option<&'a str>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: not NULL, so by the contract it ends with a 0.
    let bytes = unsafe { CStr::from_ptr(text) };
    bytes.to_str().map(Some).map_err(|error| {
        let at = error.valid_up_to();
        let text = format!("the {of} is not UTF-8 from byte {at} on; expected UTF-8");
        Failure::new(Status::NotUtf8, text)
    })
}

/// Returns a name, which is not empty.
///
/// # Errors
/// If it is NULL, empty or not UTF-8.
///
/// # Safety
/// As for [`text`].
pub(super) unsafe fn name<'a>(name: *const c_char, of: &str) -> Result<&'a str, Failure> {
    // SAFETY: the same contract.
    let name = unsafe { text(name, of)? };
    settings::name(name, of)
}

/// Returns a list.
///
/// # Errors
/// If it is NULL and not empty, or longer than [`LIST_MAX`].
///
/// # Safety
/// `first` is NULL, or has `count` elements that stay as they are during the call.
unsafe fn list<'a, T>(first: *const T, count: usize, of: &str) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    if first.is_null() || count > LIST_MAX {
        let is = if first.is_null() { "NULL" } else { "too long" };
        let text =
            format!("the list of {of} with {count} elements is {is}; expected at most {LIST_MAX}");
        return Err(Failure::new(Status::InvalidArgument, text));
    }
    // SAFETY: not NULL, so by the contract it has so many elements.
    Ok(unsafe { slice::from_raw_parts(first, count) })
}

/// Returns labels.
///
/// # Errors
/// If the list is invalid, a key is NULL or empty, or a text is not UTF-8. A value that is NULL is empty.
///
/// # Safety
/// As for `list`; keys and values are as for [`text`].
pub(super) unsafe fn labels<'a>(
    first: *const EmberlineLabel,
    count: usize,
) -> Result<Vec<Label<'a>>, Failure> {
    // SAFETY: the same contract.
    let labels = unsafe { list(first, count, "labels")? };
    labels
        .iter()
        .map(|label| {
            // SAFETY: the same contract.
            let key = unsafe { name(label.key, "key of a label")? };
            // SAFETY: likewise.
            let value = unsafe { text(label.value, "value of a label")? };
            Ok(Label {
                key,
                value: value.unwrap_or_default(),
            })
        })
        .collect()
}

/// Returns texts. NULL among them is an empty one.
///
/// # Errors
/// If the list is invalid, or a text is not UTF-8.
///
/// # Safety
/// As for `list` and [`text`].
pub(super) unsafe fn texts<'a>(
    first: *const *const c_char,
    count: usize,
    of: &str,
) -> Result<Vec<&'a str>, Failure> {
    // SAFETY: the same contract.
    let pointers = unsafe { list(first, count, of)? };
    pointers
        .iter()
        .map(|pointer| {
            // SAFETY: the same contract.
            let text = unsafe { text(*pointer, of)? };
            Ok(text.unwrap_or_default())
        })
        .collect()
}

/// Returns a copy of a struct; zeros for NULL. Later versions add fields at the end: those that the program does not
/// know are zeros, and those that this library does not know must be.
///
/// # Errors
/// If the size is smaller than that of the first field, or a field that is not known here is set.
///
/// # Safety
/// `value` is NULL, or has as many bytes as its first field says.
pub(super) unsafe fn sized<T: Growing>(value: *const T) -> Result<T, Failure> {
    let mut copy = MaybeUninit::<T>::zeroed();
    if !value.is_null() {
        // SAFETY: the first field is a `usize`.
        let size = unsafe { value.cast::<usize>().read() };
        let known = mem::size_of::<T>();
        let name = T::NAME;
        if size < mem::size_of::<usize>() || size > known + LIST_MAX {
            let text =
                format!("invalid size {size} of {name}; expected sizeof({name}), here {known}");
            return Err(Failure::new(Status::InvalidArgument, text));
        }
        let bytes = value.cast::<u8>();
        // SAFETY: by the contract the struct has `size` bytes, and the copy has `known`.
        unsafe { ptr::copy_nonoverlapping(bytes, copy.as_mut_ptr().cast(), size.min(known)) };
        // SAFETY: likewise; nothing is added if there are no more.
        let rest = unsafe { bytes.add(size.min(known)) };
        // SAFETY: these bytes are the rest of the struct.
        let unknown = unsafe { slice::from_raw_parts(rest, size.saturating_sub(known)) };
        if unknown.iter().any(|byte| *byte != 0) {
            let text = format!("{name} has fields that this version of the library does not know");
            return Err(Failure::new(Status::InvalidArgument, text));
        }
    }
    // SAFETY: any bytes are a value of such a struct.
    Ok(unsafe { copy.assume_init() })
}
