"""Server-side apply: which manager has set which field, and what happens when two set the same one."""

from copy import deepcopy
from typing import Any

Path = tuple[Any, ...]
Fields = dict[Path, Any]

_KEYS = {
    "containers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "ports": "name",
    "ownerReferences": "uid",
    "conditions": "type",
    "imagePullSecrets": "name",
    "topologySpreadConstraints": "topologyKey",
}
"""Lists whose items are distinguished by a key; all others are one value."""

_IDENTITY = {("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace")}


class Conflict(Exception):
    """Another manager has set a field otherwise."""

    def __init__(self, fields: list[str]) -> None:
        super().__init__(f"Apply failed with {len(fields)} conflicts: {', '.join(fields)}")


class Managers:
    """The managers of one object's fields."""

    def __init__(self) -> None:
        self.fields: dict[str, set[Path]] = {}

    def apply(self, manager: str, found: dict[str, Any], given: dict[str, Any], *, force: bool) -> dict[str, Any]:
        """The object with what the manager gives, without what it gave before and does not any more."""
        new, now = fields_of(given), fields_of(found)
        others = {who: paths for who, paths in self.fields.items() if who != manager}
        taken = [
            (who, path)
            for who, paths in others.items()
            for path in paths & new.keys()
            if now.get(path, new[path]) != new[path]
        ]
        if taken and not force:
            raise Conflict([f'"{".".join(map(str, path))}" with "{who}"' for who, path in taken])
        for who, path in taken:
            self.fields[who].discard(path)
        for path in self.fields.get(manager, set()) - new.keys():
            if not any(path in paths for paths in others.values()):
                now.pop(path, None)
        self.fields[manager] = {*new}
        return object_of({**now, **new})

    def entries(self) -> list[dict[str, Any]]:
        """The managers as `metadata.managedFields` has them; one of the subresource `scale` is called NAME/scale."""
        found = []
        for who, paths in self.fields.items():
            name, _, subresource = who.partition("/")
            fields: dict[str, Any] = {}
            for path in paths:
                place = fields
                for step in path:
                    key = f"f:{step}" if isinstance(step, str) else f"k:{list(step)}"
                    place = place.setdefault(key, {})
            about = {"subresource": subresource} if subresource else {}
            found.append({"manager": name, "fieldsType": "FieldsV1", "fieldsV1": fields, **about})
        return found

    def update(self, manager: str, before: dict[str, Any], after: dict[str, Any]) -> None:
        """Somebody has written the object otherwise than by apply: what is new is theirs."""
        old, new = fields_of(before), fields_of(after)
        changed = {path for path in new if path not in old or old[path] != new[path]}
        for paths in self.fields.values():
            paths -= changed | (old.keys() - new.keys())
        self.fields.setdefault(manager, set()).update(changed)


def fields_of(value: dict[str, Any]) -> Fields:
    """Every field by its path."""
    found: Fields = {}
    _flatten(value, (), found)
    return {path: one for path, one in found.items() if path not in _IDENTITY}


def _flatten(value: Any, path: Path, found: Fields) -> None:
    if isinstance(value, dict) and value:
        for key, one in value.items():
            _flatten(one, (*path, key), found)
    elif (key := _key_of(value, path)) is not None:
        for item in value:
            _flatten(item, (*path, (key, item[key])), found)
    else:
        found[path] = deepcopy(value)


def _key_of(value: Any, path: Path) -> str | None:
    key = _KEYS.get(path[-1]) if path and isinstance(path[-1], str) else None
    is_keyed = key and isinstance(value, list) and value and all(isinstance(i, dict) and key in i for i in value)
    return key if is_keyed else None


def object_of(fields: Fields) -> dict[str, Any]:
    """The object that has these fields."""
    root: dict[Any, Any] = {}
    for path, value in fields.items():
        place = root
        for step in path[:-1]:
            if not isinstance(place.get(step), dict):
                place[step] = {}
            place = place[step]
        place[path[-1]] = deepcopy(value)
    found: dict[str, Any] = _unkeyed(root)
    return found


def _unkeyed(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value and all(isinstance(key, tuple) for key in value):
        return [{key: name, **_unkeyed(one)} for (key, name), one in value.items()]
    return {key: _unkeyed(one) for key, one in value.items()}
