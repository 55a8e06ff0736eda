"""Tasks for managers: members that get arguments, tell how they worked, or work side by side."""

from compat.case import Case, answer, calls, code, member_mark, other_mark

MEMBERS = [
    Case(
        "code-member-with-arguments",
        "leader_of_coders",
        "Have it summed up.",
        [
            code(
                f"report = code_helper(task='{member_mark('code-member-with-arguments')} Sum up.',"
                " additional_args={'rows': [1, 2, 39]})\nprint(report)"
            ),
            code("final_answer('forty-two')"),
        ],
        "forty-two",
        member=[code("total = sum(rows)\nprint(total)"), code("final_answer(total)")],
    ),
    Case(
        "call-of-a-code-member",
        "caller_of_coders",
        "Have it summed up.",
        [
            calls(
                (
                    "code_helper",
                    {
                        "task": f"{member_mark('call-of-a-code-member')} Sum up.",
                        "additional_args": {"rows": [1, 2]},
                    },
                )
            ),
            answer("three"),
        ],
        "three",
        member=[code("final_answer(sum(rows))")],
    ),
    Case(
        "run-summary",
        "leader_of_a_teller",
        "Have it added.",
        [
            calls(("teller", {"task": f"{member_mark('run-summary')} Add 30 and 12."})),
            answer("forty-two"),
        ],
        "forty-two",
        member=[calls(("add", {"a": 30, "b": 12})), answer("It is 42.")],
    ),
    Case(
        "parallel-members",
        "leader_of_two",
        "Have both done.",
        [
            calls(
                ("helper", {"task": f"{member_mark('parallel-members')} Add 30 and 12."}),
                ("teller_of_less", {"task": f"{other_mark('parallel-members')} Add 1 and 1."}),
            ),
            answer("both"),
        ],
        "both",
        member=[calls(("add", {"a": 30, "b": 12})), answer("It is 42.")],
        other=[calls(("add", {"a": 1, "b": 1})), answer("It is 2.")],
    ),
]
