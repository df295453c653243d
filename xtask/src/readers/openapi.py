"""Checks the description of the HTTP API: that it is valid OpenAPI 3.1, and that its examples fit their schemas."""

import json
import sys

from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

with open(sys.argv[1], encoding="utf-8") as file:
    document = json.load(file)
validate(document)

checked = 0


def check(where, example, schema):
    global checked
    # References in the schema lead to the document's parts.
    whole = {**schema, "components": document["components"]}
    for error in Draft202012Validator(whole).iter_errors(example):
        sys.exit(f"{where}: {error.json_path}: {error.message}")
    checked += 1


for name, parameter in document["components"]["parameters"].items():
    check(f"parameter {name}", parameter["example"], parameter["schema"])
for path, operations in document["paths"].items():
    for method, operation in operations.items():
        bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
        for content in (media for body in bodies for media in body.get("content", {}).values()):
            if "example" in content and "schema" in content:
                check(f"{method} {path}", content["example"], content["schema"])
print(f"{checked} examples")
