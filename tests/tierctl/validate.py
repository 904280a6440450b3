"""validate.py SCHEMA DOCUMENT: exit 0 if the JSON document is as the schema says and the schema itself is sound."""
import json
import sys

import jsonschema

with open(sys.argv[1], encoding="utf-8") as file:
    schema = json.load(file)
with open(sys.argv[2], encoding="utf-8") as file:
    document = json.load(file)
validator = jsonschema.Draft202012Validator
validator.check_schema(schema)
errors = list(validator(schema).iter_errors(document))
for error in errors:
    print(f"{sys.argv[1]}: {error.json_path}: {error.message}", file=sys.stderr)
sys.exit(1 if errors else 0)
