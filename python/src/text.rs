//! Texts and numbers that Python code passes.

use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyMapping, PyString};

/// Returns a text; lone surrogates, which UTF-8 cannot express, become the replacement character.
pub(crate) fn lossy(text: &Bound<'_, PyString>) -> String {
    text.to_string_lossy().into_owned()
}

/// Returns the text of any object, as `str()` does.
pub(crate) fn of_object(object: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(lossy(&object.str()?))
}

/// Returns a name that is not empty. `of` names the argument in the error.
pub(crate) fn name(text: &Bound<'_, PyAny>, of: &str) -> PyResult<String> {
    let Ok(text) = text.cast::<PyString>() else {
        let error = format!("the {of} is {}; expected a str", text.repr()?);
        return Err(PyTypeError::new_err(error));
    };
    let name = lossy(text);
    if name.is_empty() {
        let error = format!("the {of} is empty; expected a text of at least one character");
        return Err(PyValueError::new_err(error));
    }
    Ok(name)
}

/// A label: a key and its value.
pub(crate) struct Label {
    pub(crate) key: String,
    pub(crate) value: String,
}

/// Returns the labels of a mapping. Values are texts, or numbers, which are converted by `str()`.
pub(crate) fn labels(labels: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<Label>> {
    let Some(labels) = labels else {
        return Ok(Vec::new());
    };
    let Ok(mapping) = labels.cast::<PyMapping>() else {
        let error = format!("the labels are {}; expected a mapping", labels.repr()?);
        return Err(PyTypeError::new_err(error));
    };
    let mut all = Vec::new();
    for item in mapping.items()? {
        let key = item.get_item(0)?;
        let value = item.get_item(1)?;
        all.push(Label {
            key: name(&key, "key of a label")?,
            value: label_value(&key, &value)?,
        });
    }
    Ok(all)
}

fn label_value(key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<String> {
    // Numbers of all libraries have it.
    let is_number = || value.hasattr(pyo3::intern!(value.py(), "__float__"));
    if value.is_instance_of::<PyString>() || is_number()? {
        return of_object(value);
    }
    let error = format!(
        "the label {} is {}; expected a str or a number",
        key.repr()?,
        value.repr()?
    );
    Err(PyTypeError::new_err(error))
}

/// Returns the number of an attempt.
pub(crate) fn attempt(number: &Bound<'_, PyAny>) -> PyResult<u32> {
    let Ok(whole) = number.cast::<PyInt>() else {
        let error = format!("the attempt is {}; expected an int", number.repr()?);
        return Err(PyTypeError::new_err(error));
    };
    let attempt = whole.extract().ok().filter(|number| *number >= 1);
    attempt.ok_or_else(|| {
        let error = format!("invalid attempt {whole}; expected 1 to {}", u32::MAX);
        PyValueError::new_err(error)
    })
}

/// Returns a length of time in seconds. `of` names the argument in the error.
pub(crate) fn seconds(seconds: f64, of: &str) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        let error = format!("invalid {of} {seconds}; expected a number of seconds, from 0");
        PyValueError::new_err(error)
    })
}

/// Returns a count. `of` names the argument in the error.
pub(crate) fn count(number: i128, least: u32, of: &str) -> PyResult<u64> {
    u64::try_from(number)
        .ok()
        .filter(|number| *number >= least.into())
        .ok_or_else(|| {
            let error = format!("invalid {of} {number}; expected {least} to {}", u64::MAX);
            PyValueError::new_err(error)
        })
}
