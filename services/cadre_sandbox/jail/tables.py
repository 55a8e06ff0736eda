"""Tables of pandas and back: CSV for every reader, and beside it all that CSV does not say (index, types, labels)."""

import io
from collections.abc import Callable
from typing import Any

from cadre_sandbox.wire.values import Value

Encode = Callable[[Any, str], Value]
"""Makes a value of a cell or label; the text names its place in errors. Raises what `to_value` does."""

_TEXTS = ("object", "str", "string")


def has_plain_index(table: Any, pandas: Any) -> bool:
    """Whether the rows are merely counted from 0."""
    index = table.index
    return (
        isinstance(index, pandas.RangeIndex) and index.start == 0 and index.step == 1 and index.name is None
    )


def to_csv(table: Any, pandas: Any) -> bytes:
    """The CSV of a frame or series; its index is in the first columns unless the rows are merely counted."""
    text: str = table.to_csv(index=not has_plain_index(table, pandas))
    return text.encode(errors="replace")


def read_csv(data: bytes, pandas: Any) -> Any:
    """The frame of a CSV."""
    # One without columns is a line without a name.
    if not data.strip():
        return pandas.DataFrame()
    return pandas.read_csv(io.BytesIO(data), float_precision="round_trip")


def is_all_in_csv(table: Any, data: bytes, pandas: Any) -> bool:
    """Whether the CSV is read as the very same frame."""
    if not isinstance(table, pandas.DataFrame) or not has_plain_index(table, pandas):
        return False
    try:
        same = read_csv(data, pandas)
        pandas.testing.assert_frame_equal(same, table, check_exact=True, check_column_type="exact")
    except (AssertionError, TypeError, ValueError):
        return False
    return not any(isinstance(label, tuple) for label in table.columns)


def to_parts(table: Any, pandas: Any, encode: Encode, place: str) -> dict[str, Value]:
    """All of a frame or series. Raises ValueError for a type of column that does not travel."""
    if isinstance(table, pandas.Series):
        own: dict[str, Value] = {"name": encode(table.name, place), "columns": None}
        columns = [(place, table)]
    else:
        own = {"name": None, "columns": _index(table.columns, pandas, encode, place)}
        columns = [(f"{place}[{label!r}]", table.iloc[:, at]) for at, label in enumerate(table.columns)]
    cells: list[Value] = [_cells(column.array, encode, where) for where, column in columns]
    return {**own, "index": _index(table.index, pandas, encode, place), "cells": cells}


def of_parts(parts: Any, pandas: Any, numpy: Any) -> Any:
    """The frame or series of these parts, whose values are objects again."""
    index = _read_index(parts["index"], pandas, numpy)
    columns = [_read_cells(cells, pandas, numpy) for cells in parts["cells"]]
    if parts["columns"] is None:
        return pandas.Series(columns[0], index=index, name=parts["name"])
    labels = _read_index(parts["columns"], pandas, numpy)
    frame = pandas.DataFrame(dict(enumerate(columns)), index=index)
    frame.columns = labels
    return frame


def _index(index: Any, pandas: Any, encode: Encode, place: str) -> Value:
    names = [encode(name, place) for name in index.names]
    if isinstance(index, pandas.RangeIndex):
        return {"names": names, "range": [index.start, index.stop, index.step]}
    levels = [index.get_level_values(level).array for level in range(index.nlevels)]
    is_multiple = isinstance(index, pandas.MultiIndex)
    cells: list[Value] = [_cells(one, encode, f"the index of {place}") for one in levels]
    return {"names": names, "multiple": is_multiple, "levels": cells}


def _read_index(parts: Any, pandas: Any, numpy: Any) -> Any:
    names = parts["names"]
    if "range" in parts:
        return pandas.RangeIndex(*parts["range"], name=names[0])
    levels = [_read_cells(cells, pandas, numpy) for cells in parts["levels"]]
    if parts["multiple"]:
        return pandas.MultiIndex.from_arrays(levels, names=names)
    index = pandas.Index(levels[0], dtype=levels[0].dtype)
    return index.rename(names[0])


def _cells(array: Any, encode: Encode, place: str) -> Value:
    """The cells of a column with the name of their type. Raises ValueError for one that does not travel."""
    dtype = array.dtype
    name = str(dtype)
    if name == "category":
        return {
            "type": name,
            "codes": [int(code) for code in array.codes],
            "categories": _cells(array.categories.array, encode, place),
            "ordered": bool(array.ordered),
        }
    if dtype.kind in "mM" and hasattr(array, "asi8"):
        return {"type": name, "cells": [int(one) for one in array.asi8]}
    if name in _TEXTS:
        kept = [None if name != "object" and item != item else item for item in _items(array)]
        return {"type": name, "cells": [encode(item, f"{place}[{row}]") for row, item in enumerate(kept)]}
    if dtype.kind in "biufc" and "[" not in name:
        return {"type": name, "cells": [encode(item, place) for item in array.tolist()]}
    raise ValueError(f"has values of type {name} in {place}; convert them first, with .astype(str)")


def _items(array: Any) -> list[Any]:
    return [None if type(item).__name__ == "NAType" else item for item in array]


def _read_cells(parts: Any, pandas: Any, numpy: Any) -> Any:
    name = parts["type"]
    if name == "category":
        categories = pandas.Index(_read_cells(parts["categories"], pandas, numpy))
        return pandas.Categorical.from_codes(parts["codes"], categories, ordered=parts["ordered"])
    cells = parts["cells"]
    if name.startswith(("datetime64", "timedelta64")):
        return _times(name, cells, pandas, numpy)
    if name == "object":
        objects = numpy.empty(len(cells), dtype=object)
        objects[:] = cells
        return objects
    is_pandas = name[0].isupper() or name in (*_TEXTS, "boolean")
    return pandas.array(cells, dtype=name) if is_pandas else numpy.array(cells, dtype=name)


def _times(name: str, counts: list[int], pandas: Any, numpy: Any) -> Any:
    """Times or durations of the type, such as `datetime64[us, UTC]`, counted in its unit."""
    kind, _, rest = name.partition("[")
    unit, _, zone = rest.removesuffix("]").partition(", ")
    column = pandas.Series(numpy.array(counts, dtype="int64").view(f"{kind}[{unit}]"))
    return (column.dt.tz_localize("UTC").dt.tz_convert(zone) if zone else column).array
