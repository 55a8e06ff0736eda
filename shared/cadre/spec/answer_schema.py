"""The JSON Schema that an agent's answers must fit."""

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec

Schema = dict[str, Any]

_MAX_LISTED = 10
"""Misfits that are listed for a model; the rest is counted."""

_DEFINITIONS = ("$defs", "definitions")


class TooMuchToCheck(ValueError):
    """A value that its schema could only be checked against with too much work."""


class SchemaCheck:
    """A schema, ready to check values. Raises ValueError for a wrong one; references to other documents are refused."""

    def __init__(self, schema: Schema) -> None:
        # Imported here: commands that make no agent should not load it.
        import jsonschema_rs

        self._schema = schema
        # A schema may come from any source: it must not make this process fetch anything.
        self._validator = jsonschema_rs.validator_for(schema, offline=True)
        self._weight = _weight(schema, schema, {})

    def errors(self, value: Any) -> list[Any]:
        """Return what does not fit, as jsonschema_rs has it: only the first error where all would take long to find.
        Raises TooMuchToCheck."""
        work = self._weight * _nodes(value)
        if work > _MOST_WORK and (self._weight < math.inf or not _may_walk(self._schema, value)):
            raise TooMuchToCheck("it is too large for its schema to be checked")
        if self._validator.is_valid(value):
            return []
        if work <= _MOST_WORK_FOR_ALL:
            return [*self._validator.iter_errors(value)]
        import jsonschema_rs

        try:
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            return [error]
        return []


def check_schema(schema: Schema) -> None:
    """Check a schema. Raises ValueError with what is wrong; references to other documents are refused."""
    _check_of(msgspec.json.encode(schema))


def misfits(schema: Schema, answer: Any, what: str = "answer") -> list[str]:
    """One line for each place where the answer does not fit; [] when it fits. `what` is how it is called."""
    try:
        errors = _check_of(msgspec.json.encode(schema)).errors(answer)
    except TooMuchToCheck as error:
        return [f"{what}: {error}"]
    lines = [f"{what}{_place(error)}: {error.message}" for error in errors[:_MAX_LISTED]]
    if len(errors) > _MAX_LISTED:
        lines.append(f"and {len(errors) - _MAX_LISTED} more")
    return lines


def fitted(schema: Schema, answer: Any) -> Any:
    """The answer; if it is a JSON text and only the value of that text fits, that value."""
    if isinstance(answer, str) and misfits(schema, answer):
        try:
            value = msgspec.json.decode(answer)
        except (ValueError, RecursionError):
            return answer
        return value if not misfits(schema, value) else answer
    return answer


def as_parameter(schema: Schema | None, description: str) -> Schema:
    """The schema of an object with one property `answer` that fits the schema, as the parameters of `final_answer`
    and as a response format, which some endpoints require to be an object."""
    about = {key: value for key, value in (schema or {}).items() if key not in (*_DEFINITIONS, "$schema")}
    if "$ref" in about:  # in strict mode nothing may stand next to it
        about = {"anyOf": [about]}
    whole: Schema = {
        "type": "object",
        "properties": {"answer": {"description": description, **about}},
        "required": ["answer"],
        "additionalProperties": False,
    }
    # References in it begin at the root.
    return whole | {key: (schema or {})[key] for key in _DEFINITIONS if key in (schema or {})}


def is_strict(schema: Any) -> bool:
    """Return whether the schema lies in the subset of OpenAI's strict mode: its root is an object, each object requires
    all its properties and allows no others, each value has a type, and no keyword, format or size goes beyond it."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return False
    parts, fit = [schema], True
    names = values = 0
    for depth in range(_STRICT_LEVELS * 2):
        inner: list[Any] = []
        for part in parts:
            fit = fit and _fits_strict(part)
            if not fit:
                return False
            names += len(part.get("properties", {}))
            values += len(part.get("enum", ()))
            inner += [*part.get("properties", {}).values(), *part.get("anyOf", ())]
            inner += [part["items"]] if "items" in part else []
            inner += [one for key in _DEFINITIONS for one in part.get(key, {}).values()] if depth == 0 else []
        parts = inner
    return not parts and names <= _STRICT_PROPERTIES and values <= _STRICT_VALUES


_STRICT_LEVELS, _STRICT_PROPERTIES, _STRICT_VALUES = 10, 5000, 1000
_STRICT_KEYS = {
    *("type", "enum", "const", "anyOf", "title", "description"),
    *("properties", "required", "additionalProperties", *_DEFINITIONS),
    *("items", "minItems", "maxItems", "pattern", "format"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
_STRICT_FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}


def _fits_strict(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return False
    if "$ref" in schema:
        return schema.keys() == {"$ref"}
    if not schema.keys() <= _STRICT_KEYS or not schema.keys() & {"type", "anyOf"}:
        return False
    if schema.get("format", "date") not in _STRICT_FORMATS:
        return False
    kinds = schema.get("type", [])
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if "array" in kinds and "items" not in schema:
        return False
    if "object" not in kinds:
        return "properties" not in schema
    closed = schema.get("additionalProperties") is False
    return closed and set(schema.get("required", [])) == set(schema.get("properties", {}))


def _place(error: Any) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path)


@lru_cache(maxsize=256)
def _check_of(schema: bytes) -> SchemaCheck:
    return SchemaCheck(msgspec.json.decode(schema))


# --- how much work a check is: counted, as a decision that is made again must come to the same end

_MOST_WORK = 5_000_000
"""Schemas that are tried on parts of the value, at most: about 0.1 s."""

_MOST_WORK_FOR_ALL = 20_000
"""The same where every error is reported: each is made with all that was tried for it."""

_MOST_WALKED = 50_000
_MOST_LEVELS = 100
_CHARACTERS = 64

_OF_LISTS = ("allOf", "anyOf", "oneOf")
_OF_VALUE = ("not", "if", "then", "else")
_OF_PROPERTIES = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_OF_ITEMS = ("items", "additionalItems", "unevaluatedItems", "contains", "prefixItems")


def _weight(schema: Any, root: Schema, known: dict[int, float], level: int = 0) -> float:
    """Return how many schemas are tried on each part of a value at most; infinite for one that refers to itself."""
    if not isinstance(schema, dict):
        return 1
    if level > _MOST_LEVELS:
        return math.inf
    if id(schema) not in known:
        known[id(schema)] = math.inf
        root = schema if "$id" in schema else root
        inner = [*_here(schema, root), *_below(schema), *_named(schema).values()]
        weights = (_weight(one, root, known, level + 1) for one in inner)
        known[id(schema)] = 1 + len(schema.get("enum", ())) / _CHARACTERS + sum(weights)
    return known[id(schema)]


def _here(schema: Schema, root: Schema) -> Iterator[Any]:
    """Yield the schemas that are tried on the same value."""
    for key in _OF_LISTS:
        if isinstance(schema.get(key), list):
            yield from schema[key]
    yield from (schema[key] for key in _OF_VALUE if key in schema)
    for key in ("dependentSchemas", "dependencies"):
        yield from _named(schema, key).values()
    for key in ("$ref", "$dynamicRef", "$recursiveRef"):
        if key in schema:
            yield _target(schema[key], root)


def _below(schema: Schema, kinds: tuple[str, ...] = (*_OF_PROPERTIES, *_OF_ITEMS)) -> Iterator[Any]:
    """Yield the schemas that are tried on the value's items and properties, but for those of named properties."""
    for key in kinds:
        found = schema.get(key, [])
        yield from found if isinstance(found, list) else [found]
    if kinds is not _OF_ITEMS:
        yield from _named(schema, "patternProperties").values()


def _named(schema: Schema, key: str = "properties") -> dict[str, Any]:
    found = schema.get(key)
    return found if isinstance(found, dict) else {}


def _target(reference: Any, root: Schema) -> Any:
    """Return the target of a reference; the root where it is no pointer, which is taken for a reference to itself."""
    target: Any = root
    if isinstance(reference, str) and reference.startswith("#/"):
        for part in reference[2:].split("/"):
            part = part.replace("~1", "/").replace("~0", "~")
            if isinstance(target, list):
                target = target[int(part)] if part.isdigit() and int(part) < len(target) else root
            else:
                target = target.get(part, root) if isinstance(target, dict) else root
    return target


def _nodes(value: Any) -> int:
    """Return the number of parts of a value."""
    count, within = 0, [value]
    while within:
        one = within.pop()
        count += 1
        if isinstance(one, str):
            count += len(one) // _CHARACTERS
        elif isinstance(one, dict):
            within += one.values()
        elif isinstance(one, list):
            within += one
    return count


def _may_walk(schema: Schema, value: Any) -> bool:
    """Return whether few steps take a schema that refers to itself through the value."""
    waiting, left = [(schema, schema, value)], _MOST_WALKED
    while waiting:
        one, root, part = waiting.pop()
        left -= 1
        if not isinstance(one, dict):
            continue
        root = one if "$id" in one else root
        left -= (len(part) if isinstance(part, str) else len(one.get("enum", ()))) // _CHARACTERS
        waiting += [(inner, root, part) for inner in _here(one, root)]
        if isinstance(part, dict):
            others, named = [*_below(one, _OF_PROPERTIES)], _named(one)
            for key, item in part.items():
                waiting += [(each, root, item) for each in ([named[key]] if key in named else []) + others]
                left -= 1 + len(others)
        elif isinstance(part, list):
            others = [*_below(one, _OF_ITEMS)]
            left -= len(part) * len(others)
            waiting += [(each, root, item) for each in others for item in (part if left >= 0 else [])]
        if left < 0:
            return False
    return True
