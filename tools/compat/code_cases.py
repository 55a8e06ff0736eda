"""Tasks for agents that write code."""

from compat.case import Case, answer, calls, code, member_mark, text, thought_and_code

IMAGE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQ"
    "DwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
"""One dot."""

CODE = [
    Case(
        "two-steps",
        "coder",
        "What is 15 multiplied by 7?",
        [code("result = 15 * 7\nprint(result)"), code("final_answer(result)")],
        105,
    ),
    Case(
        "print-and-value",
        "coder",
        "How long is it?",
        [code("print('counted')\nlen('abcd')"), code("final_answer('four')")],
        "four",
    ),
    Case(
        "assignment-has-no-value",
        "coder",
        "Keep it.",
        [code("kept = 5"), code("def double(x):\n    return 2 * x"), code("final_answer(double(kept))")],
        10,
    ),
    Case(
        "state-lives-on",
        "coder",
        "Go on.",
        [
            code("import math\nlimit = 3\ndef double(x):\n    return 2 * x"),
            code("numbers = [double(n) for n in range(limit)]\nprint(numbers)"),
            code("final_answer(sum(numbers) + math.floor(0.5))"),
        ],
        6,
    ),
    Case(
        "code-error",
        "coder",
        "Divide.",
        [code("print('before')\n1 / 0"), code("final_answer('repaired')")],
        "repaired",
    ),
    Case("syntax-error", "coder", "Assign.", [code("x = = 3"), code("final_answer('repaired')")], "repaired"),
    Case("refused-import", "coder", "Import.", [code("import os"), code("final_answer('without')")], "without"),
    Case(
        "no-code",
        "coder",
        "What is seven?",
        [text("I am sure that it is seven!"), code("final_answer(7)")],
        7,
    ),
    Case(
        "checked-answer",
        "checked_coder",
        "What is 2 times 4?",
        [code("answer = 'seven'\nfinal_answer(answer)"), code("final_answer('eight')")],
        "eight",
    ),
    Case("fence", "coder", "What is three?", [text("Thought: easy.\n```py\nfinal_answer(3)\n```")], 3),
    Case(
        "code-calls-a-tool",
        "coder",
        "Add.",
        [code("total = add(a=2, b=3)\nprint(total)"), code("final_answer(total)")],
        5,
    ),
    Case(
        "code-reads-data",
        "coder",
        "Look.",
        [code("seen = look(place='here')\nprint(seen['found'])\nseen"), code("final_answer(seen)")],
        {"place": "here", "found": "nothing"},
    ),
    Case(
        "two-blocks",
        "coder",
        "Count.",
        [
            text("First this:\n<code>\none = 1\n</code>\nThen that:\n<code>\nprint(one + 1)\n</code>"),
            code("final_answer(one)"),
        ],
        1,
    ),
    Case(
        "error-in-a-function",
        "coder",
        "Open it.",
        [
            code("def risky(n):\n    print('trying', n)\n    raise ValueError('never')\nrisky(3)"),
            code("final_answer('closed')"),
        ],
        "closed",
    ),
    Case(
        "tool-fails-in-code",
        "coder",
        "Try it.",
        [code("word = fail(why='kaput')"), code("final_answer('it is kaput')")],
        "it is kaput",
    ),
    Case(
        "answer-in-try",
        "coder",
        "Answer.",
        [
            code(
                "def finish():\n    try:\n        final_answer('out')\n"
                "    except Exception:\n        print('in')\nfinish()"
            )
        ],
        "out",
    ),
    Case(
        "arguments-in-code",
        "coder",
        "Multiply.",
        [code("product = limit * len(words)\nprint(product)"), code("final_answer(product)")],
        6,
        fields={"inputs": {"limit": 3, "words": ["a", "b"]}},
    ),
    Case(
        "structured",
        "thinker",
        "Count.",
        [
            thought_and_code("I count.", "n = len('abc')\nprint(n)"),
            thought_and_code("I am done.", "final_answer(n)"),
        ],
        3,
    ),
    Case(
        "structured-error",
        "thinker",
        "Count.",
        [text('{"thought": "only this"}'), thought_and_code("I am done.", "final_answer(3)")],
        3,
    ),
    Case(
        "plan-and-code",
        "code_planner",
        "Add up.",
        [
            text("Facts: none.\n1. Add.\n"),
            code("total = add(a=2, b=3)\nprint(total)"),
            code("1 / 0"),
            text("Facts: five.\n1. Answer.\n"),
            code("final_answer(total)"),
        ],
        5,
    ),
    Case(
        "code-manager",
        "code_manager",
        "Have it added.",
        [
            code(f"report = helper(task='{member_mark('code-manager')} Add 30 and 12.')\nprint(report)"),
            code("final_answer('forty-two')"),
        ],
        "forty-two",
        member=[calls(("add", {"a": 30, "b": 12})), answer("It is 42.")],
    ),
    Case(
        "code-without-end",
        "coder",
        "Never be done.",
        [code("x = 1\nprint(x)"), code("x += 1\nprint(x)"), text("It was two.")],
        "It was two.",
        state="max_steps_error",
        fields={"max_steps": 2},
    ),
    Case(
        "code-goes-on",
        "coder",
        "Keep three.",
        [
            code("kept = 3\nprint(kept)"),
            code("final_answer('three')"),
            code("print(3 + 1)"),
            code("final_answer('four')"),
        ],
        "four",
        then="And one more?",
    ),
    Case(
        "variables-go-on",
        "coder",
        "Keep three.",
        [
            code("kept = 3"),
            code("final_answer(kept)"),
            code("kept += 1\nprint(kept)"),
            code("final_answer(kept)"),
        ],
        4,
        then="And one more?",
        fields={"max_steps": 3},
    ),
    Case(
        "image",
        "coder",
        "Look.",
        [code("print('seen')"), code("print('again')"), code("final_answer('a dot')")],
        "a dot",
        fields={"images": [IMAGE]},
    ),
]
