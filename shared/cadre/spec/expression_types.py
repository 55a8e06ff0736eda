"""Check what templates and conditions read against the JSON Schemas of the values: attributes that no value has, and
comparisons that can never hold, are found before anything runs.

A schema that says nothing of a value lets everything pass, and so does everything that an expression computes.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from cadre.spec.expressions import check_template, parsed

Schema = dict[str, Any]


class Shape(NamedTuple):
    """The schemas that a value may have: one of these, whose references are looked up in `root`."""

    options: tuple[Schema, ...]
    root: Schema
    source: str
    """The source of the schema: `the output_schema of agent checker`."""


class Untold(NamedTuple):
    """A value whose content is not declared, although it could be."""

    advice: str
    """The advice on how to declare it, and where."""


Typed = Shape | Untold | None
"""The knowledge about a value; None: nothing."""


class Misreading(NamedTuple):
    """Something that an expression reads and that may not be there."""

    text: str
    is_certain: bool = True


def shape_of(schema: Schema | None, source: str) -> Shape | None:
    """The shape of values that fit a schema; None where it says nothing of them."""
    return None if schema is None else _resolved(schema, schema, source)


def misreadings(text: str, names: Mapping[str, Typed], *, is_condition: bool = False) -> list[Misreading]:
    """Return what is wrong with a template or condition, given what is known of the names that it reads."""
    try:
        tree = parsed(text, is_condition=is_condition)
    except ValueError:
        return []  # said where the file is read
    reader = _AttributeReader(tree)
    reader.read(tree, dict(names))
    return list(dict.fromkeys(reader.found))


def type_of(text: str, names: Mapping[str, Typed]) -> Typed:
    """Return what is known of the value of a template that is one expression; None for any other text."""
    tree = parsed(text, is_condition=False)
    body = tree.body
    if len(body) != 1 or len(getattr(body[0], "nodes", ())) != 1:
        return None
    return _AttributeReader(tree).read(body[0].nodes[0], dict(names))


def items_of(shape: Typed) -> Typed:
    """Return what is known of the items of a list."""
    if not isinstance(shape, Shape):
        return shape
    found = [one.get("items") for one in shape.options if _may_be(one, "array")]
    return _union([_resolved(one, shape.root, shape.source) if isinstance(one, dict) else None for one in found])


def attributes_read(text: str, name: str, *, is_condition: bool = False) -> tuple[set[str], set[str], bool]:
    """The attributes of a name that an expression cannot do without, those that it can, and whether it also reads the
    value as a whole."""
    from jinja2 import nodes

    try:
        tree = parsed(text, is_condition=is_condition)
    except ValueError:
        return set(), set(), False
    guarded = _guarded(tree)
    reads = [one for one in tree.find_all((nodes.Getattr, nodes.Getitem)) if _is_name(one.node, name)]
    named = {key: one for one in reads if isinstance(key := _key(one), str)}
    may = {key for key, one in named.items() if one in guarded}
    whole = sum(_is_name(one, name) for one in tree.find_all(nodes.Name)) > len(reads)
    return named.keys() - may, may, whole or len(named) < len({repr(one) for one in reads})


def names_read(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names that a template cannot do without, and those that it can."""
    from jinja2 import nodes

    try:
        names, tree = check_template(text), parsed(text, is_condition=False)
    except ValueError:
        return frozenset(), frozenset()
    guarded = _guarded(tree)
    bare = {one.name for one in tree.find_all(nodes.Name) if one not in guarded}
    return names & bare, names - bare


# --- schemas


def _resolved(schema: Schema, root: Schema, source: str, depth: int = 0) -> Shape | None:
    if depth > 20:
        return None
    reference = schema.get("$ref")
    if isinstance(reference, str):
        target: Any = root
        for part in reference.removeprefix("#").strip("/").split("/"):
            target = target.get(part) if isinstance(target, dict) else None
        return _resolved(target, root, source, depth + 1) if isinstance(target, dict) else None
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            return _union([_resolved(one, root, source, depth + 1) for one in schema[key]])
    says = schema.keys() & {"type", "properties", "items", "enum", "const"}
    return Shape((schema,), root, source) if says and not schema.keys() & {"allOf", "if"} else None


def _union(shapes: list[Any]) -> Shape | None:
    if not shapes or any(not isinstance(one, Shape) for one in shapes):
        return None
    return Shape(tuple(option for one in shapes for option in one.options), shapes[0].root, shapes[0].source)


def _types(schema: Schema) -> set[str]:
    written = schema.get("type")
    if written is None and "properties" in schema:
        return {"object"}
    if written is None:
        values = schema["enum"] if "enum" in schema else [schema["const"]] if "const" in schema else []
        return {_type_of_value(value) for value in values} or set(_PYTHON)
    return set(written) if isinstance(written, list) else {written}


def _may_be(schema: Schema, kind: str) -> bool:
    return kind in _types(schema)


_PYTHON: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "null": type(None),
}


def _type_of_value(value: Any) -> str:
    return next(name for name, one in _PYTHON.items() if type(value) is one)


class _Attribute(NamedTuple):
    """The attribute of a value under a name."""

    shape: Shape | None = None
    is_there: bool = True
    is_required: bool = True
    others: tuple[str, ...] = ()


def _attribute(shape: Shape, key: str) -> _Attribute:
    found: list[Shape | None] = []
    is_required, others = True, []
    for one in shape.options:
        properties = one.get("properties", {})
        if _may_be(one, "object") and key in properties:
            found.append(_resolved(properties[key], shape.root, shape.source))
            is_required &= key in one.get("required", ())
        elif _may_be(one, "object") and _is_open(one):
            found.append(None)
        elif any(hasattr(_PYTHON[kind], key) for kind in _types(one) if kind in _PYTHON):
            found.append(None)  # a method
        else:
            others += [name for name in properties if name not in others]
    if not found:
        return _Attribute(is_there=False, others=tuple(others))
    return _Attribute(_union(found), True, is_required)


def _is_open(schema: Schema) -> bool:
    """Return whether an object may have properties that are not named. One that names some is taken at its word."""
    unnamed = schema.get("additionalProperties")
    says = bool(unnamed) if unnamed is not None else not schema.get("properties")
    return says or bool(schema.get("patternProperties"))


def _may_equal(schema: Schema, value: Any) -> bool:
    if "enum" in schema:
        return value in schema["enum"]
    if "const" in schema:
        return bool(value == schema["const"])
    kind, types = _type_of_value(value), _types(schema)
    return kind in types or (kind in ("integer", "number") and bool(types & {"integer", "number"}))


# --- expressions


def _is_name(node: Any, name: str) -> bool:
    return type(node).__name__ == "Name" and node.name == name


def _key(node: Any) -> Any:
    """The name or index that an access is about; None when it is computed."""
    if type(node).__name__ == "Getattr":
        return node.attr
    return node.arg.value if type(node.arg).__name__ == "Const" else None


def _guarded(tree: Any) -> list[Any]:
    """Return what the expression itself asks whether it is there."""
    from jinja2 import nodes

    tests = [one.node for one in tree.find_all(nodes.Test) if one.name in ("defined", "undefined")]
    return tests + [one.node for one in tree.find_all(nodes.Filter) if one.name in ("default", "d")]


def _written(node: Any) -> str:
    match type(node).__name__:
        case "Name":
            return str(node.name)
        case "Getattr":
            return f"{_written(node.node)}.{node.attr}"
        case "Getitem":
            return f"{_written(node.node)}[{_key(node)!r}]"
        case _:
            return "…"


_ITEMS = ("first", "last", "min", "max", "random")
_SAME = ("list", "sort", "reverse", "unique", "select", "reject", "selectattr", "rejectattr")
_BY_ATTRIBUTE = ("selectattr", "rejectattr", "groupby")


class _AttributeReader:
    """Walks an expression and notes what it reads in vain."""

    def __init__(self, tree: Any) -> None:
        self.found: list[Misreading] = []
        self._guarded = _guarded(tree)

    def read(self, node: Any, names: dict[str, Typed]) -> Typed:
        """Return what is known of the node's value."""
        visit: Callable[[Any, dict[str, Typed]], Typed] | None = getattr(self, f"_{type(node).__name__.lower()}", None)
        if visit is not None:
            return visit(node, names)
        for child in node.iter_child_nodes():
            self.read(child, names)
        return None

    def _name(self, node: Any, names: dict[str, Typed]) -> Typed:
        return names.get(node.name)

    def _getattr(self, node: Any, names: dict[str, Typed]) -> Typed:
        return self._access(node, self.read(node.node, names))

    def _getitem(self, node: Any, names: dict[str, Typed]) -> Typed:
        value = self.read(node.node, names)
        self.read(node.arg, names)
        return items_of(value) if isinstance(_key(node), int) else self._access(node, value)

    def _access(self, node: Any, value: Typed) -> Typed:
        key = _key(node)
        if not isinstance(key, str) or value is None:
            return None
        return self._named(value, key, _written(node.node), _written(node), node in self._guarded)

    def _named(self, value: Typed, key: str, of: str, written: str, is_guarded: bool) -> Typed:
        if isinstance(value, Untold):
            if not is_guarded:
                self.found.append(Misreading(f"reads {written}, and {value.advice}", is_certain=False))
            return None
        if value is None:
            return None
        attribute = _attribute(value, key)
        if is_guarded:
            return attribute.shape
        if not attribute.is_there:
            has = f"{of} has {', '.join(attribute.others)}" if attribute.others else f"{of} is no object"
            advice = "read one of those, or add it there" if attribute.others else "make it one there"
            self.found.append(Misreading(f"reads {written}, which {value.source} does not have; {has}: {advice}"))
        elif not attribute.is_required:
            text = (
                f"reads {written}, which {value.source} does not require: require it there, or write"
                f" `{written} is defined` or `{written} | default(…)`"
            )
            self.found.append(Misreading(text, is_certain=False))
        return attribute.shape

    def _compare(self, node: Any, names: dict[str, Typed]) -> Typed:
        left = node.expr
        known = self.read(left, names)
        for operand in node.ops:
            right = operand.expr
            other = self.read(right, names)
            if operand.op in ("eq", "ne"):
                self._compared(left, known, _constants(right))
                self._compared(right, other, _constants(left))
            elif operand.op in ("in", "notin"):
                self._compared(left, known, _constants(right, listed=True))
                if _may_only_be(other, "array"):
                    self._compared(right, items_of(other), _constants(left))
            left, known = right, other
        return None

    def _compared(self, node: Any, known: Typed, values: list[Any]) -> None:
        if not isinstance(known, Shape) or not values:
            return
        if any(_may_equal(option, value) for option in known.options for value in values):
            return
        allowed = [one for option in known.options for one in option.get("enum", [option.get("const")])]
        if allowed != [None] * len(known.options):
            what = ", ".join(repr(value) for value in allowed if value is not None)
        else:
            what = " or ".join(sorted({kind for option in known.options for kind in _types(option)}))
        never = " or ".join(repr(value) for value in values)
        self.found.append(
            Misreading(
                f"compares {_written(node)} with {never}, which it never is: {known.source} has {what} there;"
                " compare with that, or change it there"
            )
        )

    def _filter(self, node: Any, names: dict[str, Typed]) -> Typed:
        value = self.read(node.node, names) if node.node is not None else None
        for child in (*node.args, *node.kwargs):
            self.read(child, names)
        key = next((one.value.value for one in node.kwargs if one.key == "attribute" and _constants(one.value)), None)
        if key is None and node.name in _BY_ATTRIBUTE and node.args:
            key = next(iter(_constants(node.args[0])), None)
        inner: Typed = None
        if isinstance(key, str) and node.node is not None:
            of, first = f"each of {_written(node.node)}", key.split(".")[0]
            has_default = any(one.key == "default" for one in node.kwargs)
            inner = self._named(items_of(value), first, of, f"{first} of {of}", has_default or node in self._guarded)
        if node.name == "map":
            found = inner if isinstance(inner, Shape) and "." not in str(key) else None
            return (
                None
                if found is None
                else Shape(tuple({"type": "array", "items": one} for one in found.options), found.root, found.source)
            )
        if node.name in _ITEMS:
            return items_of(value)
        return value if node.name in _SAME else None

    def _for(self, node: Any, names: dict[str, Typed]) -> Typed:
        items = items_of(self.read(node.iter, names))
        inner = {**names, **dict.fromkeys(_targets(node.target))}
        if type(node.target).__name__ == "Name":
            inner[node.target.name] = items
        for child in (*node.body, *node.else_, *([node.test] if node.test else [])):
            self.read(child, inner)
        return None

    def _assign(self, node: Any, names: dict[str, Typed]) -> Typed:
        value = self.read(node.node, names)
        names.update(dict.fromkeys(_targets(node.target)))
        if type(node.target).__name__ == "Name":
            names[node.target.name] = value
        return None


def _targets(node: Any) -> Iterator[str]:
    from jinja2 import nodes

    if isinstance(node, nodes.Name):
        yield node.name
    for name in node.find_all(nodes.Name):
        yield name.name


def _constants(node: Any, listed: bool = False) -> list[Any]:
    """Return the constant that the node is, or those in its list; [] if one of them is not constant."""
    if listed:
        if type(node).__name__ not in ("List", "Tuple"):
            return []
        values = [_constants(item) for item in node.items]
        return [value for one in values for value in one] if all(values) else []
    # Whether something is `none` may be asked of all.
    is_constant = type(node).__name__ == "Const" and type(node.value) in _PYTHON.values() and node.value is not None
    return [node.value] if is_constant else []


def _may_only_be(known: Typed, kind: str) -> bool:
    return isinstance(known, Shape) and all(_types(one) <= {kind, "null"} for one in known.options)
