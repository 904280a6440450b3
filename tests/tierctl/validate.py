"""validate.py SCHEMA DOCUMENT [SCHEMA DOCUMENT]...: exit 0 if each JSON document is as its schema says and the schemas themselves are sound."""
import json
import sys

import jsonschema


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


bad = False
for schema_path, document_path in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
    schema = load(schema_path)
    jsonschema.Draft202012Validator.check_schema(schema)
    for error in jsonschema.Draft202012Validator(schema).iter_errors(load(document_path)):
        print(f"{document_path} as {schema_path}: {error.json_path}: {error.message}", file=sys.stderr)
        bad = True
sys.exit(1 if bad else 0)
