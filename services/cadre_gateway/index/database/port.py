"""The port to the database of the index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, Self

from cadre_gateway.index.database.dialect import Dialect

Value = str | bytes | int | float | None
Row = tuple[Any, ...]


class Statement(NamedTuple):
    """A statement with `?` for each value, to be carried out once with each of the rows."""

    sql: str
    rows: Sequence[Sequence[Value]]


class SqlQuery(NamedTuple):
    """A question with `?` for each value."""

    sql: str
    values: Sequence[Value] = ()


class Database(Protocol):
    """Keeps the tables of `schema`. Every method raises RunIndexUnavailable."""

    dialect: Dialect
    is_shared: bool
    """Whether other processes have it too. One of all writes."""

    async def lead(self) -> bool:
        """Whether this process is the one that writes, or has become it now."""
        ...

    async def writer(self) -> str:
        """Names the other process that writes; "" when there is none."""
        ...

    async def depose(self) -> None:
        """Takes the database from the other process that writes: it stands still."""
        ...

    async def write(self, statements: Sequence[Statement]) -> None:
        """Carries out all of them in one transaction, or none."""
        ...

    async def read(self, query: SqlQuery) -> list[Row]:
        """The rows of what was written."""
        ...

    async def read_all(self, queries: Sequence[SqlQuery]) -> list[list[Row]]:
        """The rows of several questions, at once."""
        ...

    def beside(self) -> Self:
        """An empty one, to be filled and adopted, or closed."""
        ...

    async def adopt(self, other: Self) -> None:
        """Takes the place of what it has with what the other has, and closes that."""
        ...

    async def bytes(self) -> int:
        """How much room it takes."""
        ...

    async def close(self) -> None:
        """Lets go of the database."""
        ...
