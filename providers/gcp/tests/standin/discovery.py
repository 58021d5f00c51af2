"""Google's description of its API, from the discovery document that google-api-python-client ships."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import unquote
from uuid import UUID

import googleapiclient

from providers.gcp.tests.standin.answers import Json, Refused, invalid

SERVED = {
    "instances": ("insert", "get", "delete", "aggregatedList"),
    "zoneOperations": ("get",),
}
"""All that the driver may call."""

_RANGES = {"int32": 31, "uint32": 32, "int64": 63, "uint64": 64}


@cache
def document() -> Json:
    path = Path(googleapiclient.__file__).parent / "discovery_cache" / "documents" / "compute.v1.json"
    content: Json = json.loads(path.read_text(encoding="utf-8"))
    return content


@dataclass(frozen=True)
class Method:
    """One method of the API, able to say what is wrong with a request."""

    id: str
    description: Json

    def match(self, verb: str, path: str) -> dict[str, str] | None:
        """The parameters in ``path``; None when this is another method's."""
        if verb != self.description["httpMethod"]:
            return None
        template = document()["servicePath"] + self.description["path"]
        found = re.fullmatch(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", template), path.removeprefix("/"))
        return {name: unquote(value) for name, value in found.groupdict().items()} if found else None

    def check(self, path: dict[str, str], query: dict[str, list[str]], body: Json | None) -> None:
        """Raises Refused for a request that the document does not allow."""
        parameters = self.description["parameters"]
        for name, value in path.items():
            if not re.fullmatch(parameters[name]["pattern"], value):
                raise invalid(name, value, f"Must be a match of regex '{parameters[name]['pattern']}'")
        for name, values in query.items():
            if name.startswith("$") or name in document()["parameters"]:
                continue
            if parameters.get(name, {}).get("location") != "query":
                raise Refused(400, "badRequest", f'Unknown name "{name}": Cannot bind query parameter.')
            if len(values) != 1:
                raise invalid(name, values, "Must be given once.")
            _check_text(name, parameters[name], values[0])
        if "requestId" in query:
            _check_request_id(query["requestId"][0])
        if "request" not in self.description:
            if body is not None:
                raise Refused(400, "badRequest", "The request must have no body.")
        elif body is None:
            raise Refused(400, "required", "Required field 'resource' not specified")
        else:
            _check_value("resource", document()["schemas"][self.description["request"]["$ref"]], body, self.full_id)

    @property
    def full_id(self) -> str:
        return str(self.description["id"])


@cache
def methods() -> tuple[Method, ...]:
    return tuple(
        Method(f"{resource}.{name}", document()["resources"][resource]["methods"][name])
        for resource, names in SERVED.items()
        for name in names
    )


def _check_request_id(value: str) -> None:
    try:
        usable = UUID(value).int != 0 and str(UUID(value)) == value
    except ValueError:
        usable = False
    if not usable:
        raise invalid("requestId", value, "Must be a valid UUID, and not zero.")


def _check_text(name: str, schema: Json, text: str) -> None:
    """A parameter of the query: everything is text there."""
    if schema["type"] == "boolean" and text not in {"true", "false"}:
        raise invalid(name, text, "Must be true or false.")
    if schema["type"] == "integer" and not (text.isdecimal() and int(text) < 2 ** _RANGES[schema["format"]]):
        raise invalid(name, text, "Must be a number.")
    if name == "maxResults" and not 0 <= int(text) <= 500:
        raise invalid(name, text, "Must be between 0 and 500, inclusive.")


def _check_value(field: str, schema: Json, value: object, method: str) -> None:
    if "$ref" in schema:
        schema = document()["schemas"][schema["$ref"]]
    if schema.get("readOnly"):
        raise invalid(field, value, "The field is output only.")
    match schema["type"]:
        case "object":
            _check_object(field, schema, value, method)
        case "array":
            if not isinstance(value, list):
                raise invalid(field, value, "Must be a list.")
            for position, item in enumerate(value):
                _check_value(f"{field}[{position}]", schema["items"], item, method)
                _check_pattern(field, schema, item)
        case "boolean":
            if not isinstance(value, bool):
                raise invalid(field, value, "Must be a boolean.")
        case "integer":
            if isinstance(value, bool) or not isinstance(value, int):
                raise invalid(field, value, "Must be a number.")
        case "string":
            _check_string(field, schema, value)


def _check_object(field: str, schema: Json, value: object, method: str) -> None:
    if not isinstance(value, dict):
        raise invalid(field, value, "Must be an object.")
    properties = schema.get("properties", {})
    for name, content in value.items():
        inner = properties.get(name) or schema.get("additionalProperties")
        if inner is None:
            raise Refused(400, "badRequest", f"Invalid JSON payload received. Unknown name \"{name}\" at '{field}'")
        _check_value(f"{field}.{name}", inner, content, method)
    for name in _required(properties, method):
        if not value.get(name):
            raise Refused(400, "required", f"Required field '{field}.{name}' not specified")


def _required(properties: Json, method: str) -> Iterator[str]:
    for name, schema in properties.items():
        if method in schema.get("annotations", {}).get("required", ()):
            yield name


def _check_string(field: str, schema: Json, value: object) -> None:
    if not isinstance(value, str):
        raise invalid(field, value, "Must be a string.")
    bits = _RANGES.get(schema.get("format", ""))
    if bits and not (value.isdecimal() and int(value) < 2**bits):
        raise invalid(field, value, "Must be a number, written as a string.")
    if "enum" in schema and value not in schema["enum"]:
        raise invalid(field, value, f"Must be one of {schema['enum']}")
    _check_pattern(field, schema, value)


def _check_pattern(field: str, schema: Json, value: object) -> None:
    if "pattern" in schema and not re.fullmatch(schema["pattern"], str(value)):
        raise invalid(field, value, f"Must be a match of regex '{schema['pattern']}'")
