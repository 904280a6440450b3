"""validate.py SCHEMA DOCUMENT [SCHEMA DOCUMENT]...: exit 0 if each JSON document is as its schema says, with no member that it does not know, and the schemas
themselves are sound. (Readers have to ignore members that they do not know: a later version may have them. This one has not.)"""
import json
import sys

import jsonschema


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def closed(schema):
    """The same, without room for members that it does not name."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: closed(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and "type" in schema:
        result.setdefault("additionalProperties", False)
    return result


bad = False
for schema_path, document_path in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
    schema = load(schema_path)
    jsonschema.Draft202012Validator.check_schema(schema)
    for error in jsonschema.Draft202012Validator(closed(schema)).iter_errors(load(document_path)):
        print(f"{document_path} as {schema_path}: {error.json_path}: {error.message}", file=sys.stderr)
        bad = True
sys.exit(1 if bad else 0)
