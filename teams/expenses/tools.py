"""Tools of the expense check: they read receipts and the policy, and pay."""

# Annotations are left unquoted: the tool decorator reads them as types.

import csv
from pathlib import Path
from typing import TypedDict

from cadre import tool

DATA = Path(__file__).parent / "data"


class Receipt(TypedDict):
    receipt: str
    day: str
    kind: str
    amount: float
    note: str


class Payment(TypedDict):
    receipt: str
    paid: float


@tool(read_only=True)
def read_receipts(report: str) -> list[Receipt]:
    """Lists the receipts of an expense report.

    Args:
        report: Name of the report.
    """
    with (DATA / "receipts.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["report"] == report]
    return [
        Receipt(
            receipt=row["receipt"],
            day=row["day"],
            kind=row["kind"],
            amount=float(row["amount"]),
            note=row["note"],
        )
        for row in rows
    ]


@tool(read_only=True)
def read_policy() -> str:
    """Returns the rules on what is reimbursed."""
    return (DATA / "policy.md").read_text("utf-8")


@tool
def reimburse(receipt: str, amount: float) -> Payment:
    """Pays a receipt, or a part of it.

    Args:
        receipt: Number of the receipt.
        amount: What is paid.
    """
    return Payment(receipt=receipt, paid=amount)
