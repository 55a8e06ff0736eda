"""One value as the command line gives it: `--set KEY=VALUE`."""

import re
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from cadre.deploy.k8s.values import Values, Workload
from cadre.errors import SpecError
from cadre.spec.yaml_file import parse_yaml

_ASSIGNMENT = re.compile(r"((?:\\.|[^\\=])+)=(.*)", re.DOTALL)
_KEY = re.compile(r"(?:\\.|[^\\.])+")
_INDEX = re.compile(r"\[\d*\]")
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")

_DOTS = r"a dot that belongs to a key is written \., as in 'nats.pods.app\.kubernetes\.io/name=nats'"

_NEEDED = {int: "a whole number", float: "a number", bool: "true or false"}


def setting(assignment: str) -> dict[str, Any]:
    """Return the layer that `a.b=value` stands for. Raises SpecError.

    `\\.` is a dot within a key. Where the value is a text, VALUE is it as it stands; else it is a number, true, false,
    null, or in brackets, braces or quotes YAML, so JSON too.
    """
    found = _ASSIGNMENT.fullmatch(assignment)
    path = found[1] if found else ""
    keys = [re.sub(r"\\(.)", r"\1", key) for key in _KEY.findall(path)]
    if found is None or not keys or len(keys) != len(re.findall(r"(?<!\\)\.", path)) + 1:
        raise SpecError(f"--set {assignment!r}: write KEY=VALUE, as in nats.shards=8")
    value = _value(assignment, found[2], _kind_of(assignment, keys))
    for key in reversed(keys):
        value = {key: value}
    layer: dict[str, Any] = value
    return layer


def _kind_of(assignment: str, keys: list[str]) -> Any:
    """Return the type of the value at this place. Raises SpecError for a key that there is not."""
    kind: Any = Values
    for place, key in enumerate(keys):
        so_far = ".".join(keys[:place])
        if _INDEX.search(key):
            raise SpecError(
                f"--set {assignment!r}: a list is set as a whole: --set '{_cut(key, so_far)}=[…]'"
            )
        if kind is Any:
            return Any
        # What is given in short or as a mapping: below it there are the mapping's keys.
        if get_origin(kind) in (Union, UnionType):
            kind = next((one for one in get_args(kind) if _is_struct(one)), kind)
        if _is_struct(kind):
            fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
            if key not in fields:
                there_are = f"{so_far or 'the values'}: no key `{key}`; there are {', '.join(fields)}"
                raise SpecError(f"--set {assignment!r}: {there_are}" + f"; {_DOTS}" * (place > 1))
            kind = _bare(fields[key])
        elif get_origin(kind) is dict:
            # The values of a workload are checked once all layers are one: until then they are any mapping.
            kind = Workload if place == 1 and keys[0] == "workloads" else get_args(kind)[1]
        else:
            raise SpecError(f"--set {assignment!r}: {so_far} has no keys below it; {_DOTS}")
    return kind


def _cut(key: str, before: str) -> str:
    return ".".join(filter(None, [before, _INDEX.sub("", key)]))


def _bare(kind: Any) -> Any:
    """Return the type without bounds and without None."""
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    options = [one for one in get_args(kind) if one is not NoneType]
    return options[0] if NoneType in get_args(kind) and len(options) == 1 else kind


def _value(assignment: str, text: str, kind: Any) -> Any:
    if kind is str:
        return text
    if text in ("true", "false"):
        return text == "true"
    if text == "null":
        return None
    is_list, is_mapping = get_origin(kind) is list, get_origin(kind) is dict or _is_struct(kind)
    if text[:1] in ("{", "[", '"', "'"):
        if is_list and text.startswith("{"):
            # As Helm writes a list.
            text = f"[{text[1:].removesuffix('}')}]"
        try:
            return parse_yaml(text, f"--set {assignment!r}", SpecError)
        except SpecError as error:
            raise SpecError(f"{error}; the shell needs quotes around the whole: --set 'KEY={{…}}'") from error
    if is_list or is_mapping:
        raise SpecError(
            f"--set {assignment!r}: needs a {'list' if is_list else 'mapping'}: --set"
            f" 'KEY={'[…]' if is_list else '{…}'}', or null for none"
        )
    if kind is float and _NUMBER.fullmatch(text):
        return float(text)
    try:
        return int(text)
    except ValueError:
        if kind in _NEEDED:
            more = "; give each value its own --set" * ("," in text)
            raise SpecError(f"--set {assignment!r}: needs {_NEEDED[kind]}{more}") from None
        return text


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)
