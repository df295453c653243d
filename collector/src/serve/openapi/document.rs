//! The document, without the schemas, which the crate `api` writes.

use std::collections::BTreeMap;

use axum::http::Method;
use query::{Kind, Parameter};
use serde_json::{Map, Value, json};

use super::operations::{Content, Operation, media_of, operations};
use crate::serve::access::{ROUTES, Route};
use base::limits::FILTER_VALUES_MAX;
use front::auth::Access;

/// Builds the document, with these schemas, and with answers as examples by their paths.
pub(in crate::serve) fn document(schemas: &Value, answers: &BTreeMap<&str, Value>) -> Value {
    let operations = operations();
    let mut paths = Map::new();
    let mut shared = Map::new();
    for route in ROUTES {
        let mut found = operations
            .iter()
            .filter(|operation| operation.path == route.path && operation.method == route.method);
        let operation = found
            .next()
            .unwrap_or_else(|| panic!("{route:?} is not described"));
        assert!(found.next().is_none(), "{route:?} is described twice");
        let path = route.path.replace("{*", "{");
        let mut described = described(operation, route, &mut shared);
        if let Some(example) = answers
            .get(route.path)
            .filter(|_| route.method == Method::GET)
        {
            described["responses"]["200"]["content"]["application/json"]["example"] =
                example.clone();
        }
        paths.entry(path).or_insert_with(|| json!({}))[method_of(route)] = described;
    }
    assert_eq!(operations.len(), ROUTES.len(), "an operation has no route");
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Emberline's collector",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Conventions, such as the notation of times: docs/API.md.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "http://127.0.0.1:4747"}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "parameters": shared,
            "responses": failures(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    })
}

fn method_of(route: &Route) -> String {
    route.method.as_str().to_lowercase()
}

fn described(operation: &Operation, route: &Route, shared: &mut Map<String, Value>) -> Value {
    let mut described = json!({
        "operationId": format!("{} {}", route.method, route.path),
        "summary": operation.summary,
        "responses": responses(operation, route.access),
    });
    let of_path = path_parameters(route.path);
    let of_query = given(operation).map(|given| reference(shared, parameter(given)));
    let parameters: Vec<Value> = of_path.into_iter().chain(of_query).collect();
    if !parameters.is_empty() {
        described["parameters"] = parameters.into();
    }
    if let Some(request) = &operation.request {
        let mut content = body(request);
        if !request.example.is_empty() {
            content["example"] = serde_json::from_str(request.example).unwrap();
        }
        described["requestBody"] = json!({"required": true, "content": {request.media: content}});
    }
    if route.access != Access::Open {
        described["security"] = json!([{"token": []}]);
        described["description"] = format!("Needs the role {}.", route.access.role()).into();
    }
    described
}

/// The parameters of a route's query.
pub(in crate::serve) fn given(operation: &Operation) -> impl Iterator<Item = &'static Parameter> {
    let all = operation.parameters.iter().copied().flatten();
    all.filter(|parameter| !operation.fixed.contains(&parameter.name))
}

/// Adds a parameter to those that routes share, by its name and a number if others have the same name.
fn reference(shared: &mut Map<String, Value>, parameter: Value) -> Value {
    let name = parameter["name"]
        .as_str()
        .expect("it has a name")
        .to_owned();
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let key = std::iter::once(name.clone())
        .chain(numbered)
        .find(|key| shared.get(key).is_none_or(|known| *known == parameter))
        .expect("numbers do not end");
    let reference = json!({"$ref": format!("#/components/parameters/{key}")});
    shared.insert(key, parameter);
    reference
}

fn path_parameters(path: &str) -> Vec<Value> {
    let names = path
        .split('{')
        .skip(1)
        .filter_map(|rest| rest.split_once('}'));
    names
        .map(|(name, _): (&str, &str)| {
            let name = name.trim_start_matches('*');
            json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}})
        })
        .collect()
}

fn parameter(parameter: &Parameter) -> Value {
    let mut value = schema_of(parameter.kind);
    if let Some(default) = parameter.default {
        value["default"] = default.into();
    }
    let schema = if parameter.is_repeated {
        json!({"type": "array", "items": value, "maxItems": FILTER_VALUES_MAX})
    } else {
        value
    };
    let example: Value = match parameter.kind {
        Kind::Integer { .. } => parameter.example.parse::<u64>().unwrap().into(),
        _ => parameter.example.into(),
    };
    let example = if parameter.is_repeated {
        json!([example])
    } else {
        example
    };
    json!({
        "name": parameter.name,
        "in": "query",
        "description": parameter.description,
        "required": parameter.is_required,
        "schema": schema,
        "example": example,
    })
}

fn schema_of(kind: Kind) -> Value {
    match kind {
        Kind::Text => json!({"type": "string"}),
        Kind::Time => json!({"type": "string", "format": "emberline-time"}),
        Kind::Span => json!({"type": "string", "format": "emberline-span"}),
        Kind::Integer {
            min,
            max,
            default: None,
        } => {
            json!({"type": "integer", "minimum": min, "maximum": max})
        }
        Kind::Integer {
            min,
            max,
            default: Some(default),
        } => {
            json!({"type": "integer", "minimum": min, "maximum": max, "default": default})
        }
        Kind::Choice(values) => json!({"type": "string", "enum": values()}),
    }
}

fn body(content: &Content) -> Value {
    match content.schemas {
        [] => json!({}),
        [name] => json!({"schema": schema_reference(name)}),
        names => {
            json!({"schema": {"anyOf": names.iter().map(schema_reference).collect::<Vec<_>>()}})
        }
    }
}

fn schema_reference(name: &&str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn responses(operation: &Operation, access: Access) -> Value {
    let mut success = json!({"description": "Success."});
    if let Some(answer) = &operation.answer {
        let mut content = Map::new();
        for format in formats(operation) {
            content.insert(media_of(format).to_owned(), json!({}));
        }
        content.insert(answer.media.to_owned(), body(answer));
        success["content"] = content.into();
    }
    let mut responses = Map::new();
    responses.insert(operation.status.to_string(), success);
    for (status, _) in FAILURES {
        if may_fail(operation, access, status) {
            let reference = format!("#/components/responses/{status}");
            responses.insert(status.to_string(), json!({"$ref": reference}));
        }
    }
    responses.into()
}

/// The formats that a parameter chooses among.
fn formats(operation: &Operation) -> Vec<&'static str> {
    let mut choices = given(operation).filter(|parameter| parameter.name == "format");
    match choices.next().map(|parameter| parameter.kind) {
        Some(Kind::Choice(values)) => values(),
        _ => Vec::new(),
    }
}

const FAILURES: [(u16, &str); 10] = [
    (
        400,
        "A parameter or the body is invalid, or the range is empty or reversed.",
    ),
    (401, "A token is missing or not valid."),
    (
        403,
        "The caller's role may not do this, or a page of another site asks.",
    ),
    (404, "No task, worker or run of that name is known."),
    (
        409,
        "Only a collector can do this, and this server reads stores.",
    ),
    (413, "The body is too long."),
    (415, "The body has another content type."),
    (
        429,
        "The caller has its share or quota; `retry-after` says when to try again.",
    ),
    (500, "An internal error."),
    (
        503,
        "Too many queries, or nothing can be stored; `retry-after` says when to try again.",
    ),
];

fn may_fail(operation: &Operation, access: Access, status: u16) -> bool {
    let is_query = operation.path.starts_with("/api/") || operation.path.starts_with("/debug/");
    let names = ["task", "worker", "run", "build_id"];
    match status {
        400 => is_query || operation.request.is_some(),
        401 | 403 => access != Access::Open,
        404 => given(operation).any(|parameter| names.contains(&parameter.name)),
        409 => access == Access::Operator && operation.path != "/api/v1/sql",
        413 | 415 => operation.request.is_some(),
        _ => is_query,
    }
}

fn failures() -> Value {
    Value::Object(
        FAILURES
            .map(|(status, description): (u16, &str)| {
                let schema = json!({"$ref": "#/components/schemas/Failure"});
                let content = json!({"application/json": {"schema": schema}});
                (
                    status.to_string(),
                    json!({"description": description, "content": content}),
                )
            })
            .into_iter()
            .collect(),
    )
}
