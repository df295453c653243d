//! `json_get(json, key)`: an element of a column with JSON, such as the label `zone` of a worker.

use std::sync::Arc;

use datafusion::arrow::array::{Array as _, AsArray as _, StringViewBuilder};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use serde_json::Value;

/// The value of a key of an object, or of an index of a list, as text. `NULL` if there is none.
#[derive(PartialEq, Eq, Hash, Debug)]
pub(super) struct JsonGet {
    signature: Signature,
}

impl JsonGet {
    pub(super) fn new() -> JsonGet {
        JsonGet {
            signature: Signature::uniform(2, vec![DataType::Utf8View], Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for JsonGet {
    fn name(&self) -> &str {
        "json_get"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [texts, keys] = arrays.as_slice() else {
            return exec_err!("json_get() needs JSON and a key, as in json_get(labels, 'zone')");
        };
        let texts = texts.as_string_view();
        let mut values = StringViewBuilder::with_capacity(texts.len());
        for (text, key) in texts.iter().zip(keys.as_string_view()) {
            values.append_option(text.zip(key).and_then(|(text, key)| element(text, key)));
        }
        Ok(ColumnarValue::Array(Arc::new(values.finish())))
    }
}

fn element(json: &str, key: &str) -> Option<String> {
    let element = match serde_json::from_str(json).ok()? {
        Value::Object(mut object) => object.remove(key)?,
        Value::Array(mut list) => {
            let index: usize = key.parse().ok()?;
            (index < list.len()).then(|| list.swap_remove(index))?
        }
        _ => return None,
    };
    match element {
        Value::Null => None,
        Value::String(text) => Some(text),
        other => Some(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_objects_and_lists_are_texts() {
        for (json, key, expected) in [
            (r#"{"zone":"a","n":7,"none":null}"#, "zone", Some("a")),
            (r#"{"zone":"a","n":7,"none":null}"#, "n", Some("7")),
            (r#"{"zone":"a","n":7,"none":null}"#, "none", None),
            (r#"{"zone":"a"}"#, "rack", None),
            (r#"[["load",1,2],["run",3,4]]"#, "1", Some(r#"["run",3,4]"#)),
            ("[1]", "1", None),
            ("[1]", "-1", None),
            ("7", "0", None),
            ("{", "zone", None),
            ("", "zone", None),
        ] {
            assert_eq!(element(json, key).as_deref(), expected, "{json} {key}");
        }
    }
}
