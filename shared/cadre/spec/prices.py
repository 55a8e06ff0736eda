"""The prices of models per million tokens, by the model's name."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from cadre.errors import SettingError, SpecError
from cadre.protocol.usage import Usage
from cadre.spec.model import ModelSpec, Price
from cadre.spec.names import MOST
from cadre.spec.yaml_file import read_yaml

PER = 1_000_000


class Prices:
    """Prices by name or pattern (`*`); the first match counts."""

    def __init__(self, table: dict[str, Price] | None = None) -> None:
        self._table = table or {}

    @classmethod
    def read(cls, path: str) -> Prices:
        """Read a YAML file of lines like `name: {input: 0.4, output: 1.6}`; without a path there are no prices.

        Raises SettingError with what is wrong in the file.
        """
        if not path:
            return cls()
        try:
            table = msgspec.convert(read_yaml(Path(path), SettingError), dict[str, Price])
            check_prices(table)
            return cls(table)
        except (msgspec.ValidationError, SpecError) as error:
            raise SettingError(
                f"CADRE_PRICES={path}: {error}; write lines like `some-model: {{input: 0.4, output: 1.6}}`"
            ) from error

    def of(self, model: str) -> Price | None:
        """The price of a model, None when it has none."""
        return next((price for name, price in self._table.items() if fnmatchcase(model, name)), None)

    def known_among(self, model: ModelSpec) -> list[str]:
        """The names of the model and its fallbacks that are written down and have a price."""
        named = [one for one in (model, *model.fallbacks) if one.name]
        return [one.name for one in named if one.price is not None or self.of(one.name) is not None]


def check_prices(table: dict[str, Price]) -> None:
    """Raise SpecError for an invalid price."""
    for name, price in table.items():
        if not all(0 <= one <= MOST for one in (price.input, price.output, price.cached or 0)):
            raise SpecError(f"{name}: a price is a number from 0")


def priced(usage: Usage, price: Price, cached_tokens: int = 0) -> Usage:
    """The usage with its cost filled in; so many of its input tokens had the endpoint cached."""
    cached = min(cached_tokens, usage.input_tokens) if price.cached is not None else 0
    read = (usage.input_tokens - cached) * price.input + cached * (price.cached or 0)
    return msgspec.structs.replace(usage, cost=(read + usage.output_tokens * price.output) / PER)
