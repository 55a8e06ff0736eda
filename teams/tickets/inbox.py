"""Tools of the shop's desk: they read the inbox and settle tickets, each once, in a SQLite file."""

# Annotations are left unquoted: the tool decorator reads them as types.

import csv
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypedDict

from cadre import tool
from cadre.tool import ToolContext

HERE = Path(__file__).parent
TABLES = """
create table tickets (number text primary key, customer text, article text, paid real, text text);
create table stock (article text primary key, left integer check (left >= 0));
create table actions (call text primary key, ticket text, kind text, amount real, text text);
create unique index settled_once on actions (ticket) where kind != 'note';
"""


class Ticket(TypedDict):
    number: str
    customer: str
    article: str
    paid: float
    text: str


class Inbox(TypedDict):
    open: int
    next: Ticket | None
    """The open ticket that came first."""


class Settled(TypedDict):
    ticket: str
    kind: str
    amount: float
    next: Ticket | None
    """The open ticket that comes now."""


def shop_file() -> Path:
    """The SQLite file; it is made from `data/` when it is first opened."""
    return Path(os.environ.get("TICKETS_DB") or HERE / ".shop.sqlite")


@contextmanager
def shop() -> Iterator[sqlite3.Connection]:
    """The shop's tables, in one transaction."""
    with closing(sqlite3.connect(shop_file(), timeout=30, isolation_level=None)) as connection:
        connection.execute("begin immediate")
        if not connection.execute("select 1 from sqlite_master").fetchone():
            for statement in TABLES.split(";"):
                connection.execute(statement)
            for table in ("tickets", "stock"):
                with (HERE / "data" / f"{table}.csv").open(newline="", encoding="utf-8") as file:
                    for row in csv.reader(list(file)[1:]):
                        connection.execute(f"insert into {table} values ({','.join('?' * len(row))})", row)
        yield connection
        connection.execute("commit")  # what raises before this is rolled back when the connection is closed


def next_ticket(connection: sqlite3.Connection) -> tuple[int, Ticket | None]:
    """How many tickets are open, and the first of them."""
    settled = "select ticket from actions where kind != 'note'"
    rows = connection.execute(f"select * from tickets where number not in ({settled}) order by number").fetchall()
    return len(rows), Ticket(**dict(zip(Ticket.__annotations__, rows[0], strict=True))) if rows else None  # type: ignore[typeddict-item]


def act(ticket: str, kind: str, amount: float, text: str, context: ToolContext) -> Settled:
    """Writes down what is done about a ticket; a call that comes again changes nothing."""
    with shop() as connection:
        found = connection.execute("select paid, article from tickets where number = ?", [ticket]).fetchone()
        if found is None:
            raise ValueError(f"there is no ticket {ticket}")
        paid, article = found
        if not connection.execute("select 1 from actions where call = ?", [context.call_id]).fetchone():
            _check(connection, ticket, kind, amount, paid)
            if kind == "replacement":
                taken = connection.execute("update stock set left = left - 1 where article = ? and left > 0", [article])
                if not taken.rowcount:
                    raise ValueError(f"there is no {article} left in stock")
            row: list[Any] = [context.call_id, ticket, kind, amount, text]
            connection.execute("insert into actions values (?, ?, ?, ?, ?)", row)
        return Settled(ticket=ticket, kind=kind, amount=amount, next=next_ticket(connection)[1])


def _check(connection: sqlite3.Connection, ticket: str, kind: str, amount: float, paid: float) -> None:
    done = connection.execute("select kind from actions where ticket = ? and kind != 'note'", [ticket]).fetchone()
    if done is not None and kind != "note":
        raise ValueError(f"ticket {ticket} is settled already, by a {done[0]}")
    if amount > paid:
        raise ValueError(f"{amount:.2f} is more than the {paid:.2f} that were paid")


@tool(read_only=True)
def read_inbox() -> Inbox:
    """Tells how many tickets are open, and the first of them."""
    with shop() as connection:
        count, first = next_ticket(connection)
        return Inbox(open=count, next=first)


@tool(idempotent=True)
def refund(ticket: str, amount: float, context: ToolContext) -> Settled:
    """Pays money back to the customer, which settles the ticket.

    Args:
        ticket: Number of the ticket.
        amount: Euros.
    """
    return act(ticket, "refund", amount, "", context)


@tool(idempotent=True)
def send_replacement(ticket: str, context: ToolContext) -> Settled:
    """Sends the customer the article once more, which settles the ticket; an error where there is none in stock.

    Args:
        ticket: Number of the ticket.
    """
    return act(ticket, "replacement", 0, "", context)


@tool(idempotent=True)
def reply(ticket: str, text: str, context: ToolContext) -> Settled:
    """Writes to the customer, which settles the ticket.

    Args:
        ticket: Number of the ticket.
        text: What they read.
    """
    return act(ticket, "reply", 0, text, context)


@tool(idempotent=True)
def add_note(ticket: str, text: str, context: ToolContext) -> Settled:
    """Keeps a note for the shop, which settles nothing.

    Args:
        ticket: Number of the ticket that it is about.
        text: The note.
    """
    return act(ticket, "note", 0, text, context)
