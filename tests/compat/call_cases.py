"""Tasks for agents that call tools."""

from __future__ import annotations

from compat.case import Case, answer, calls, member_mark, text

CALLS = [
    Case("one-call", "caller", "Add.", [calls(("add", {"a": 2, "b": 3})), answer("five")], "five"),
    Case(
        "words-and-a-call",
        "caller",
        "Add.",
        [calls(("add", {"a": 2, "b": 3}), content="I add them."), answer(5)],
        5,
    ),
    Case(
        "answer-is-data",
        "caller",
        "Look.",
        [calls(("look", {"place": "here"})), answer({"n": [1, 2]})],
        {"n": [1, 2]},
    ),
    Case(
        "parallel",
        "caller",
        "Add twice.",
        [
            calls(("add", {"a": 2, "b": 3}), ("echo", {"text": "so"}), ("add", {"a": 20, "b": 10})),
            answer("both"),
        ],
        "both",
    ),
    Case(
        "call-in-text",
        "caller",
        "Add.",
        [
            text('I add.\n{"name": "add", "arguments": {"a": 2, "b": 3}}'),
            text('{"name": "final_answer", "arguments": {"answer": "five"}}'),
        ],
        "five",
    ),
    Case("no-call", "caller", "What is seven?", [text("It is seven."), answer("seven")], "seven"),
    Case(
        "wrong-arguments",
        "caller",
        "Add.",
        [
            calls(("add", {"a": 2, "b": 3, "c": 4})),
            calls(("add", {"a": 2})),
            calls(("add", {"a": "two", "b": 3})),
            calls(("add", {"a": 2, "b": 3})),
            answer("five"),
        ],
        "five",
    ),
    Case(
        "unknown-tool",
        "caller",
        "Subtract.",
        [calls(("subtract", {"a": 2})), answer("cannot")],
        "cannot",
    ),
    Case(
        "tool-fails",
        "caller",
        "Try it.",
        [calls(("fail", {"why": "kaput"})), calls(("echo", {"text": "so"})), answer("it is kaput")],
        "it is kaput",
    ),
    Case(
        "one-of-two-fails",
        "caller",
        "Try both.",
        [calls(("add", {"a": 2, "b": 3}), ("fail", {"why": "kaput"})), answer("one is kaput")],
        "one is kaput",
    ),
    Case(
        "answer-not-alone",
        "caller",
        "Add and answer.",
        [calls(("add", {"a": 2, "b": 3}), ("final_answer", {"answer": "early"})), answer("five")],
        "five",
    ),
    Case(
        "arguments-by-name",
        "caller",
        "Say it.",
        [calls(("echo", {"text": "city"})), answer("done")],
        "done",
        fields={"additional_args": {"city": "Oslo"}},
    ),
    Case(
        "plan-and-call",
        "call_planner",
        "Add up.",
        [
            text("Facts: none.\n1. Add.\n"),
            calls(("add", {"a": 2, "b": 3})),
            calls(("add", {"a": 5, "b": 5}), content="Once more."),
            text("Facts: ten.\n1. Answer.\n"),
            answer("ten"),
        ],
        "ten",
    ),
    Case(
        "call-manager",
        "call_manager",
        "Have it added.",
        [
            calls(("helper", {"task": f"{member_mark('call-manager')} Add 30 and 12."})),
            answer("forty-two"),
        ],
        "forty-two",
        member=[calls(("add", {"a": 30, "b": 12})), answer("It is 42.")],
    ),
    Case(
        "calls-go-on",
        "caller",
        "Add.",
        [calls(("add", {"a": 2, "b": 3})), answer("five"), calls(("add", {"a": 5, "b": 1})), answer("six")],
        "six",
        then="And one more?",
    ),
    Case(
        "calls-without-end",
        "caller",
        "Never be done.",
        [calls(("add", {"a": 1, "b": 1})), calls(("add", {"a": 1, "b": 2})), text("It was three.")],
        "It was three.",
        state="max_steps_error",
        fields={"max_steps": 2},
    ),
]
