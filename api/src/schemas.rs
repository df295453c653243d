//! Writes the bodies as schemas into `docs/openapi.json`, whose other parts a test of the collector writes. The test
//! fails if the committed file differs; to regenerate it: `UPDATE_EXPECT=1 cargo test -p emberline-api`.

use std::fs;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

use crate::*;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/openapi.json");

/// The bodies of requests and answers, and what they contain.
fn schemas() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
    });
    let mut generator = settings.into_generator();
    macro_rules! add {
        ($($body:ty),* $(,)?) => { $(add::<$body>(&mut generator);)* };
    }
    #[rustfmt::skip]
    add![
        Failure, ProfileAnswer, TimelineAnswer, ThreadTimeAnswer,
        TasksAnswer, TaskColumnsAnswer, TaskSummaryAnswer, TaskComparisonAnswer, TaskDurationsAnswer, ProgressAnswer,
        WorkersAnswer, WorkerNamesAnswer, SettingsChange, SettingsAnswer, ThreadDumpAnswer,
        TransfersAnswer, TransferSummaryAnswer, ResourcesAnswer, Run, RunStart, RunStop, RunsAnswer, EventsAnswer, Update,
        SymbolsAnswer, SymbolsVerifyAnswer, SymbolUploadAnswer, SymbolsGcRequest, SymbolsGcAnswer,
        SymbolsFetchRequest, SymbolsFetchAnswer, SessionAnswer, SqlRequest, SqlAnswer,
    ];
    Value::Object(generator.take_definitions(true))
}

fn add<T: JsonSchema>(generator: &mut SchemaGenerator) {
    generator.subschema_for::<T>();
}

#[test]
fn the_committed_schemas_are_up_to_date() {
    let text = fs::read_to_string(DOCUMENT).unwrap_or_else(|_| "{}".into());
    let mut document: Value = serde_json::from_str(&text).unwrap();
    let schemas = schemas();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        document["components"]["schemas"] = schemas;
        fs::write(DOCUMENT, format!("{document:#}\n")).unwrap();
        return;
    }
    let is_equal = document["components"]["schemas"] == schemas;
    assert!(is_equal, "run: UPDATE_EXPECT=1 cargo test -p emberline-api");
}

/// Clients that generate code from the description follow each reference.
#[test]
fn every_reference_has_its_schema() {
    let schemas = schemas();
    let text = json!(schemas).to_string();
    let references = text.split("\"$ref\":\"#/components/schemas/").skip(1);
    let mut count = 0;
    for reference in references {
        let (name, _) = reference.split_once('"').unwrap();
        assert!(schemas.get(name).is_some(), "{name}");
        count += 1;
    }
    assert!(count > 50, "{count}");
}
