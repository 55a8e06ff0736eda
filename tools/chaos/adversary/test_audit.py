"""The audit can fail, and shares nothing with what it audits: sound streams pass, doctored ones are found."""

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chaos.adversary import audit as module
from chaos.adversary.audit import Message, Ruling, Seen, audit, hash_of

Run = list[tuple[str, list[dict[str, Any]]]]
"""The entries of a journal: cause and events."""

HELD: Run = [
    ("r1:task", [{"type": "run.accepted", "task": {"task": "held k1"}}, asked := {"type": "model.called"}]),
    (
        "r1:m1",
        [
            {"type": "model.answered", "purpose": "act", "step": 1},
            {"type": "approval.requested", "call": "c1"},
        ],
    ),
    (
        "d1",
        [
            {"type": "approval.decided", "call": "c1", "verdict": "approved"},
            {"type": "tool.called", "call": "c1"},
        ],
    ),
    ("d2", [{"type": "record.ignored"}]),
    ("c1:result", [{"type": "tool.answered", "call": "c1"}, asked]),
    ("r1:m2", [{"type": "model.answered", "purpose": "act", "step": 2}, {"type": "run.finished"}]),
]
SPENT = {"input_tokens": 90, "output_tokens": 10}
LOOP: Run = [
    ("r2:task", [{"type": "run.accepted", "task": {"task": "loop k2"}}, asked]),
    ("r2:late", [{"type": "record.ignored", "usage": SPENT}]),
    (
        "r2:m1",
        [
            {"type": "model.answered", "purpose": "act", "step": 1, "usage": SPENT},
            {"type": "memory.recalled", "memories": [{"text": "done with n1"}]},
            {"type": "run.finished", "error": {"code": "budget", "type": "BudgetExceeded"}},
        ],
    ),
]


def sealed(run: str, entries: Run, first: int) -> list[Message]:
    found: list[Message] = []
    before = ""
    for n, (cause, events) in enumerate(entries, 1):
        fields = {"run": run, "n": n, "cause": cause, "events": events}
        body = json.dumps(fields, separators=(",", ":")).encode()[:-1]
        before = hash_of(body, before)
        data = body + b',"prev":"Ag","hash":"%s"}' % before.encode()
        found.append(Message(first + n, f"cadre.run.0.{run}.{run}", data))
    return found


class Books:
    """Sound streams and what was seen of them, for a test to doctor."""

    def __init__(self) -> None:
        self.runs = {"r1": [*HELD], "r2": [*LOOP]}
        self.more = [
            Message(51, "cadre.effect.0.r1.c1.boss.pay", b'{"type":"effect_claim"}'),
            Message(52, "cadre.effect.0.r1.c1.boss.pay", b'{"type":"effect_result"}'),
            Message(53, "cadre.in.0.teller.gateway.r1.r1", b'{"id":"d2"}'),
            Message(54, "cadre.effect.0.r1._trial.7", b"not read"),
        ]
        self.seen = Seen(
            runs={"k1": "r1", "k2": "r2"},
            streams={"r1": [1, 2, 3, 4, 5, 6]},
            budgets={"r2": 200},
            rulings=[Ruling("c1", "approved", 200, "approved"), Ruling("c1", "rejected", 409, "")],
            memories={"r2": ["n1"]},
        )

    def found(self) -> list[str]:
        messages = [*sealed("r1", self.runs["r1"], 0), *sealed("r2", self.runs["r2"], 20), *self.more]
        return audit({"CADRE-0": messages}, self.seen)


def test_sound_streams_pass() -> None:
    assert Books().found() == []


def changed(run: str, index: int, entry: tuple[str, list[dict[str, Any]]]) -> Callable[[Books], None]:
    def change(books: Books) -> None:
        books.runs[run][index : index + 1] = [entry]

    return change


def without(run: str, index: int) -> Callable[[Books], None]:
    return lambda books: books.runs[run].__delitem__(index)


def also(**what: Any) -> Callable[[Books], None]:
    def add(books: Books) -> None:
        for name, value in what.items():
            held = getattr(books.seen, name)
            if isinstance(held, list):
                held.append(value)
            else:
                held.update(value)

    return add


def stored(subject: str, data: bytes) -> Callable[[Books], None]:
    return lambda books: books.more.append(Message(60, subject, data))


DECIDED = {"type": "approval.decided", "call": "c1", "verdict": "rejected"}


@pytest.mark.parametrize(
    ("doctor", "said"),
    [
        (changed("r1", 3, ("d1", [{"type": "record.ignored"}])), "have the cause d1"),
        (without("r1", 5), "has 0 run.finished"),
        (without("r1", 3), "no entry accounts for record d2"),
        (
            lambda books: books.runs["r1"].append(("x", [{"type": "tool.called", "call": "c2"}])),
            "after its end came",
        ),
        (changed("r1", 3, ("d2", [DECIDED])), "2 approval.decided"),
        (
            changed("r1", 2, ("d1", [DECIDED, {"type": "tool.called", "call": "c1"}])),
            "was rejected, and made",
        ),
        (changed("r1", 2, ("d1", [{**DECIDED, "verdict": "approved"}])), "was approved, and never made"),
        (also(rulings=Ruling("c1", "rejected", 200, "rejected")), "was told rejected, and approved counts"),
        (also(rulings=Ruling("c1", "approved", 409, "")), "was refused, and it is what counts"),
        (also(rulings=Ruling("c9", "approved", 200, "approved")), "nothing is decided"),
        (also(rulings=Ruling("c1", "approved", 500, "")), "answered 500"),
        (also(streams={"r1": [1, 2, 4, 5, 6]}), "its follower was told"),
        (also(streams={"r1": [1, 2, 3, 3, 4, 5, 6]}), "its follower was told"),
        (also(runs={"k3": "r3"}), "request k3"),
        (lambda books: books.seen.runs.pop("k2"), "which nobody has asked for"),
        (also(budgets={"r2": 100}), "a model was asked after"),
        (also(budgets={"r1": 100}), "did not end for its budget"),
        (also(memories={"r2": ["n1", "n2"]}), "the note n2 is recalled 0 times"),
        (also(memories={"r2": ["n2"]}), "nobody of its user has noted"),
        (stored("cadre.effect.0.r1.c1.boss.pay", b'{"type":"effect_result"}'), "its effects are"),
        (stored("cadre.in.0.teller.gateway.r1.r1", b'{"id":"lost"}'), "no entry accounts for record lost"),
        (
            changed("r1", 4, ("c1:r", [{"type": "model.answered", "purpose": "act", "step": 1}])),
            "was kept 2 times",
        ),
    ],
)
def test_what_is_doctored_is_found(doctor: Callable[[Books], Any], said: str) -> None:
    books = Books()
    if said == "a model was asked after":
        books.runs["r2"].insert(2, ("r2:lost", [asked]))
    doctor(books)
    assert any(said in line for line in books.found()), books.found()


def test_an_entry_that_was_changed_is_found() -> None:
    books = Books()
    messages = sealed("r1", books.runs["r1"], 0)
    messages[2] = messages[2]._replace(data=messages[2].data.replace(b"approved", b"rejected"))
    assert any("was changed" in line for line in audit({"CADRE-0": messages}, books.seen))
    assert any("are numbered" in line for line in audit({"CADRE-0": messages[1:]}, books.seen))


def test_the_audit_shares_no_code_with_the_runtime() -> None:
    tree = ast.parse(Path(module.__file__).read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not [name for name in names if name.split(".")[0].startswith(("cadre", "chaos", "harness", "msgspec"))]
