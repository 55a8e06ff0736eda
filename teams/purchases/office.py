"""Tools of the purchasing department: they read requests and catalogue, and keep a ledger in a SQLite file."""

# Annotations are left unquoted: the tool decorator reads them as types.

import csv
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypedDict

from cadre import tool
from cadre.tool import ToolContext

HERE = Path(__file__).parent
BUDGET = 2000.0
TABLES = """
create table if not exists reservations (request text primary key, amount real);
create table if not exists mails (call text primary key, request text, name text, text text);
create table if not exists orders (call text primary key, request text, article text, pieces integer);
"""


class Request(TypedDict):
    number: str
    who: str
    article: str
    pieces: int
    total: float
    reason: str


class Order(TypedDict):
    request: str
    article: str
    pieces: int


@contextmanager
def ledger() -> Iterator[sqlite3.Connection]:
    """The ledger, in one transaction; the file is made when it is first opened."""
    path = os.environ.get("PURCHASES_DB") or HERE / ".ledger.sqlite"
    with closing(sqlite3.connect(path, timeout=30)) as connection:
        connection.executescript(TABLES)
        with connection:
            yield connection


def rows(name: str) -> list[dict[str, str]]:
    with (HERE / "data" / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def in_catalogue(article: str) -> dict[str, str]:
    for row in rows("catalogue"):
        if row["article"] == article:
            return row
    raise ValueError(f"the catalogue has no {article}")


@tool(read_only=True)
def read_request(text: str) -> Request:
    """Reads the purchase request whose number a text names.

    Args:
        text: Has a number in it like P-1.
    """
    number = re.search(r"P-\d+", text)
    for row in rows("requests"):
        if number and row["number"] == number[0]:
            return Request(
                number=row["number"],
                who=row["who"],
                article=row["article"],
                pieces=int(row["pieces"]),
                total=int(row["pieces"]) * float(row["price"]),
                reason=row["reason"],
            )
    raise ValueError(f"there is no such request: {text}")


@tool(read_only=True)
def budget_left() -> float:
    """Tells how much of this month's budget is not reserved yet."""
    with ledger() as book:
        reserved: float = book.execute("select coalesce(sum(amount), 0) from reservations").fetchone()[0]
        return BUDGET - reserved


@tool(read_only=True)
def delivery_time(article: str) -> int:
    """Tells in how many days the supplier delivers an article.

    Args:
        article: As the catalogue names it.
    """
    return int(in_catalogue(article)["days"])


@tool(idempotent=True)
def reserve(request: str, amount: float) -> float:
    """Reserves a part of the budget for a request; returns what was reserved.

    Args:
        request: Number of the request.
        amount: Euros.
    """
    with ledger() as book:
        book.execute("insert or replace into reservations values (?, ?)", [request, amount])
    return amount


@tool(idempotent=True)
def release(request: str) -> str:
    """Gives back what was reserved for a request.

    Args:
        request: Number of the request.
    """
    with ledger() as book:
        book.execute("delete from reservations where request = ?", [request])
    return f"nothing is reserved for {request} any more"


@tool(idempotent=True)
def write_mail(request: str, to: str, text: str, context: ToolContext) -> str:
    """Writes a mail to somebody of the school.

    Args:
        request: Number of the request that it is about.
        to: Their name.
        text: The mail.
    """
    with ledger() as book:
        book.execute("insert or ignore into mails values (?, ?, ?, ?)", [context.call_id, request, to, text])
    return f"{to} has mail"


@tool(idempotent=True)
def place_order(request: str, article: str, pieces: int, context: ToolContext) -> Order:
    """Orders an article of the supplier.

    Args:
        request: Number of the request.
        article: As the catalogue names it.
        pieces: How many.
    """
    if in_catalogue(article)["made"] != "yes":
        raise ValueError(f"the {article} is not made any more")
    with ledger() as book:
        row = [context.call_id, request, article, pieces]
        book.execute("insert or ignore into orders values (?, ?, ?, ?)", row)
    return Order(request=request, article=article, pieces=pieces)
