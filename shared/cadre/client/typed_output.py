"""A run's answer as a type of the caller's."""

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def converted(output: Any, kind: type[T]) -> T:
    """The output as a msgspec struct, dataclass, TypedDict, pydantic model, or built-in type like `list[int]`.

    Raises ValueError (msgspec.ValidationError and pydantic's own are such), saying what does not fit.
    """
    validate = getattr(
        kind, "model_validate", None
    )  # a pydantic model: the library itself does not need pydantic
    if validate is not None:
        found: T = validate(output)
        return found
    return msgspec.convert(output, type=kind)
