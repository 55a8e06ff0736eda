"""Policies as people write them: `policies: [careful, ./house.yaml, {rules: …}]` in an agent's file, and files of the
kind `Policy`. All are read into the agent's specification, so that a run keeps the rules that it began with.
"""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, get_args

import msgspec
from msgspec.inspect import type_info

from cadre.errors import SpecError
from cadre.protocol.cards import ALL_FIELDS, EFFECTS, WITH_DESTINATION, CallMeaning, Does
from cadre.protocol.policy import Policy, PolicyRule, Span
from cadre.spec.durations import with_seconds
from cadre.spec.expressions import NoTemplate, check_expression, parsed
from cadre.spec.yaml_file import read_yaml
from cadre.structs import misfit_of

FUNCTIONS = (
    *("origin", "asked", "known", "clear", "made_up"),
    *("links", "carries", "count", "total"),
)
"""Functions that a condition may call."""

PER: tuple[Span, ...] = get_args(Span)
"""The range over which `count` and `total` add up."""

GROUPS = ("effects", "undeclared", "delegate")
"""Words in `calls` that stand for several kinds, for tools that say nothing, and for calls of team members."""

_SHIPPED = Path(__file__).parent / "shipped_policies"
_HEAD = ("apiVersion", "kind", "metadata", "spec")
_LISTS = ("to", "what", "text", "trusted")
_LISTS_OF_RULES = ("calls", "by")


def shipped_policies() -> list[str]:
    """Return the names of the policies that come with Cadre."""
    return sorted(file.stem for file in _SHIPPED.glob("*.yaml"))


def shipped_text(name: str) -> str:
    """Return the file of a shipped policy. Raises SpecError for a name that none has."""
    if name not in shipped_policies():
        raise SpecError(f"no policy {name!r} is shipped: there are {', '.join(shipped_policies())}")
    return (_SHIPPED / f"{name}.yaml").read_text("utf-8")


def with_policies(data: Any, folder: Path) -> tuple[Any, list[Path]]:
    """Return an agent's document with its policies in place of their names, and the files that hold them, without
    shipped ones.

    Raises SpecError naming the file and what is wrong in it.
    """
    spec = data.get("spec") if isinstance(data, dict) else None
    if not isinstance(spec, dict) or "policies" not in spec:
        return data, []
    files: list[Path] = []
    found = _listed(spec["policies"], "spec.policies", folder, files, ())
    return {**data, "spec": {**spec, "policies": msgspec.to_builtins(found)}}, files


def read_policies(source: str, folder: Path) -> tuple[list[Policy], list[Path]]:
    """Return the policies of a name or file, those that it names included, and the files read. Raises SpecError."""
    files: list[Path] = []
    return _listed([source], "policies", folder, files, ()), files


def check_action(action: CallMeaning, parameters: Sequence[str] | None = None) -> None:
    """Raise ValueError for what cannot be said of a tool with these parameters; None: they are not known."""
    if action.does in (None, "read") and action.amount:
        raise ValueError("amount is for calls that do something: say what by does")
    for key in ("to", "what", "text", "amount"):
        named = getattr(action, key)
        for name in [named] if isinstance(named, str) and named else named:
            if parameters is not None and name not in parameters:
                known = ", ".join(parameters) or "none"
                raise ValueError(f"{key} names {name!r}, which is no parameter: there are {known}")
    if ALL_FIELDS in action.trusted and len(action.trusted) > 1:
        raise ValueError("trusted: write all, or the fields")


def check_policies(policies: Sequence[Policy]) -> None:
    """Raise SpecError for policies of one agent that do not fit together, or hold a rule that cannot be read."""
    names: set[str] = set()
    for policy in policies:
        if not policy.name:
            raise SpecError("a policy needs a name", key="policies")
        for place, rule in enumerate(policy.rules, 1):
            _check_rule(rule, f"{policy.name}: rules[{place - 1}]")
            if rule.name in names:
                raise SpecError(f"two rules are named {rule.name!r}: give one another name", key="policies")
            names.add(rule.name)
        for tool, action in policy.tools.items():
            try:
                check_action(action)
            except ValueError as error:
                raise SpecError(f"{policy.name}: {error}", key=f"tools.{tool}") from error
    for policy in policies:
        for name, other in policy.instead.items():
            if name not in names:
                known = ", ".join(sorted(names)) or "none"
                raise SpecError(
                    f"{policy.name}: no other rule is named {name!r}; the agent's rules are {known}",
                    key=f"instead.{name}",
                )
            if other is not None:
                _check_rule(other, f"{policy.name}: instead.{name}")


def _check_rule(rule: PolicyRule, where: str) -> None:
    if not rule.calls:
        raise SpecError(f"{where}: calls names nothing: write kinds, tools or '*'")
    if bool(rule.hold) == bool(rule.deny):
        raise SpecError(f"{where}: give either hold or deny, with a condition")
    if rule.deny and (rule.by or rule.within is not None):
        raise SpecError(f"{where}: by and within are for hold; a denied call needs no decision")
    if rule.within is not None and rule.within < 1:
        raise SpecError(f"{where}: within must be at least 1 s")
    try:
        check_expression(rule.hold or rule.deny)
    except NoTemplate as error:
        raise SpecError(f"{where}: {rule.hold or rule.deny!r}: {error.why}") from error
    _check_functions(rule.hold or rule.deny, where)


def _check_functions(condition: str, where: str) -> None:
    from jinja2 import nodes

    for call in parsed(condition, is_condition=True).find_all(nodes.Call):
        if not isinstance(call.node, nodes.Name):
            continue  # a method of a value
        name = call.node.name
        if name not in FUNCTIONS:
            raise SpecError(f"{where}: there is no function {name!r}: there are {', '.join(FUNCTIONS)}")
        counts = name in ("count", "total")
        spans = [one.value for one in call.kwargs if counts and one.key == "per"]
        spans += call.args[1:] if counts else []
        written = [one.value if isinstance(one, nodes.Const) else None for one in spans]
        if any(one.key != "per" or not counts for one in call.kwargs) or not set(written) <= set(PER):
            raise SpecError(f"{where}: {name}: write per as one of {', '.join(PER)}, and nothing else by name")


# --- what files hold


def _listed(written: Any, where: str, folder: Path, files: list[Path], within: tuple[Path, ...]) -> list[Policy]:
    if not isinstance(written, list):
        raise SpecError("write a list of names, files and rules", key=where)
    found: list[Policy] = []
    for index, one in enumerate(written):
        place = f"{where}[{index}]"
        if isinstance(one, str):
            policies = _named(one, place, folder, files, within)
        elif isinstance(one, dict):
            policies = _of_spec(one.get("name", "own"), _without(one, "name"), place, folder, files, within)
        else:
            raise SpecError("name a policy or its file, or write {rules: …}", key=place)
        found += [policy for policy in policies if policy not in found]
    return found


def _without(section: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in section.items() if key not in keys}


def _named(name: str, where: str, folder: Path, files: list[Path], within: tuple[Path, ...]) -> list[Policy]:
    is_path = "/" in name or name.endswith((".yaml", ".yml"))
    path = folder / name if is_path else _SHIPPED / f"{name}.yaml"
    if not path.is_file():
        shipped = ", ".join(shipped_policies())
        problem = f"there is no file {path}" if is_path else f"no policy {name!r} is shipped"
        raise SpecError(f"{problem}: name one of {shipped}, or the path of a file", key=where)
    if path in within:
        raise SpecError(f"{path} names itself, through {' and '.join(map(str, within))}", key=where)
    if is_path:
        files.append(path)
    try:
        data = read_yaml(path, SpecError)
        if not isinstance(data, dict):
            raise SpecError("is no policy: write rules")
        if not data.keys() & set(_HEAD):
            return _of_spec(path.stem, data, "", path.parent, files, (*within, path))
        _check_keys(data, "the document", _HEAD)
        if data.get("apiVersion") != "cadre.dev/v1" or data.get("kind") != "Policy":
            raise SpecError("write apiVersion: cadre.dev/v1 and kind: Policy")
        metadata, spec = data.get("metadata") or {}, data.get("spec") or {}
        _check_keys(metadata, "metadata", ("name",))
        own = metadata.get("name", path.stem) if isinstance(metadata, dict) else path.stem
        return _of_spec(own, spec, "spec", path.parent, files, (*within, path))
    except SpecError as error:
        if str(path) not in error.files:
            error.in_file(path)
        raise


_KEYS = ("policies", *(name for name in Policy.__struct_fields__ if name != "name"))


def _of_spec(
    name: Any, spec: Any, where: str, folder: Path, files: list[Path], within: tuple[Path, ...]
) -> list[Policy]:
    """Return the policies that one names, then itself, all rules named."""
    if not isinstance(spec, dict):
        raise SpecError("write rules, known, trusted, tools or policies", key=where)
    if spec.get("mode", "enforce") not in ("enforce", "watch"):
        raise SpecError("write enforce or watch", key=f"{where}.mode".lstrip("."))
    _check_keys(spec, where or "the document", _KEYS)
    others = _listed(spec.get("policies", []), f"{where}.policies".lstrip("."), folder, files, within)
    section = _without(spec, "policies")
    section["rules"] = [
        _rule_of(one, f"{where}.rules[{index}]".lstrip("."), f"{name}.{index + 1}")
        for index, one in enumerate(_list_of(spec.get("rules", []), f"{where}.rules".lstrip(".")))
    ]
    section["instead"] = {
        key: None if one in (None, "never") else _rule_of(one, f"{where}.instead.{key}".lstrip("."), key)
        for key, one in _dict_of(spec.get("instead", {}), f"{where}.instead".lstrip(".")).items()
    }
    section["trusted"] = {
        tool: [fields] if isinstance(fields, str) else fields
        for tool, fields in _dict_of(spec.get("trusted", {}), f"{where}.trusted".lstrip(".")).items()
    }
    section["tools"] = {
        tool: _action_of(one, f"{where}.tools.{tool}".lstrip("."))
        for tool, one in _dict_of(spec.get("tools", {}), f"{where}.tools".lstrip(".")).items()
    }
    try:
        own = msgspec.convert({**with_seconds(section, type_info(Policy), where), "name": name}, Policy)
    except msgspec.ValidationError as error:
        misfit = misfit_of(error)
        raise SpecError(misfit.problem, key=f"{where}.{misfit.place}".strip(".")) from error
    for index, rule in enumerate(own.rules):
        _check_rule(rule, f"{where}.rules[{index}]".lstrip("."))
    return [*others, own]


def _rule_of(written: Any, where: str, name: str) -> dict[str, Any]:
    if not isinstance(written, dict):
        raise SpecError("write a rule: {calls: pay, hold: not known(to), because: …}", key=where)
    _check_keys(written, where, PolicyRule.__struct_fields__, about_calls=True)
    rule = {"name": name, **written}
    for key in _LISTS_OF_RULES:
        if isinstance(rule.get(key), str):
            rule[key] = [rule[key]]
    for key in ("hold", "deny"):
        if isinstance(rule.get(key), bool):
            rule[key] = "true" if rule[key] else "false"
        elif rule.get(key) == "always":
            rule[key] = "true"
    return rule


def _action_of(written: Any, where: str) -> dict[str, Any]:
    if not isinstance(written, dict):
        raise SpecError("write what the tool does: {does: pay, to: recipient, amount: amount}", key=where)
    _check_keys(written, where, CallMeaning.__struct_fields__)
    if written.get("does") in WITH_DESTINATION and "to" not in written:
        raise SpecError(
            f"does: {written['does']} needs to: the arguments that say where it goes; [] for none", key=where
        )
    if "does" in written and written["does"] not in get_args(Does):
        raise SpecError(f"does: {written['does']} is no kind: write one of {', '.join(get_args(Does))}", key=where)
    return {key: [one] if key in _LISTS and isinstance(one, str) else one for key, one in written.items()}


def _list_of(written: Any, where: str) -> list[Any]:
    if not isinstance(written, list):
        raise SpecError("write a list", key=where)
    return written


def _dict_of(written: Any, where: str) -> dict[str, Any]:
    if not isinstance(written, dict) or not all(isinstance(key, str) for key in written):
        raise SpecError("write names, and what holds for each", key=where)
    return written


def _check_keys(found: Any, where: str, known: Sequence[str], *, about_calls: bool = False) -> None:
    for key in found if isinstance(found, dict) else ():
        if key in known:
            continue
        hint = "; the calls that a rule is about stand under calls" if about_calls and key in ("on", True) else ""
        raise SpecError(f"unknown key {key!r} in {where}; known keys: {', '.join(known)}{hint}")


# --- what rules are about


def is_about(rule: PolicyRule, tool: str, does: str | None) -> bool:
    """Return whether the rule is about calls of this tool or member; `does` is their kind, None where nothing says."""
    return any(_matches(one, tool, does) for one in rule.calls)


def _matches(pattern: str, tool: str, does: str | None) -> bool:
    if pattern == "effects":
        return does is None or does in EFFECTS
    if pattern == "undeclared":
        return does is None
    return pattern == does or fnmatchcase(tool, pattern)


def spans_in(policies: Sequence[Policy]) -> set[Span]:
    """Return what the rules count calls over beyond their own run."""
    return {span for words in words_in(policies) for span in PER[1:] if span in words}


def words_in(policies: Sequence[Policy]) -> Iterator[str]:
    """Yield the conditions of all rules that hold."""
    for policy in policies:
        for rule in [*policy.rules, *(one for one in policy.instead.values() if one is not None)]:
            yield rule.hold or rule.deny
