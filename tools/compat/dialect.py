"""The wording of a system for its model: where each kind of text begins, and what its errors say."""

import ast
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Dialect:
    of_user: dict[str, str]
    """Kind of section: pattern of its opening, at the start of a line. The opening is no part of the section."""
    of_assistant: dict[str, str]
    final_system: str
    """Found in the system message of the request for an answer after the last step."""
    update_system: str
    """Found in that of the request for a later plan."""
    variables: str
    """Stands between a task and its additional arguments."""
    share: str
    """Finds the task in what a member reads (group 1)."""
    report: str
    """Opening of a member's report, with its name (group 1)."""
    summary: str
    """A member's summary of its work behind its report (group 1)."""
    named: str
    """The text before each result, when the calls were written in text."""
    after_error: str
    """The text behind an error's message."""
    errors: list[tuple[str, str]]
    """Kind and pattern, tried in order; the named groups are the details."""
    calls: Callable[[str], list[dict[str, Any]]]
    """Reads the calls that are written out in an assistant's text: `{name, arguments}` each."""

    def unopened(self, openings: dict[str, str]) -> str:
        """Return what a text is before its first opening."""
        return "said" if openings is self.of_assistant else "unknown"


def _python_calls(text: str) -> list[dict[str, Any]]:
    return [call["function"] for call in ast.literal_eval(text)]


def _line_calls(text: str) -> list[dict[str, Any]]:
    lines = (line.partition(" ") for line in text.splitlines())
    return [{"name": name, "arguments": json.loads(arguments)} for name, _, arguments in lines]


SMOLAGENTS = Dialect(
    of_user={
        "task": r"New task:\n",
        "observation": r"Observation:\n",
        "error": r"(?:Call id: \S+\n)?Error:\n",
        "proceed": r"Now proceed and carry out this plan\.",
        "survey": r"You are a world expert at analyzing a situation to derive facts",
        "new_plan": r"Now write your updated facts below, taking into account the above history:",
        "answer_now": r"Based on the above, please provide an answer to the following user task:\n",
    },
    of_assistant={
        "calls": r"Calling tools:\n",
        "first_plan": r"Here are the facts I know and the plan of action that I will follow to solve the task:\n```\n",
        "later_plan": r"I still need to solve the task I was given:\n```\n",
    },
    final_system=r"^An agent tried to answer a user query but it got stuck",
    update_system=r"^You are a world expert at analyzing a situation, and plan accordingly",
    variables="\nYou have been provided with these additional arguments, that you can access directly using the keys"
    " as variables:\n",
    share=r"^You're a helpful agent named '\w+'\..*?\n---\nTask:\n(.*?)\n---\n",
    report=r"^Here is the final answer from your managed agent '(\w+)':\n",
    summary=r"\n+For more detail, find below a summary of this agent's work:\n<summary_of_work>(.*)</summary_of_work>",
    named=r"\A(?!)",
    after_error=r"\nNow let's retry: take care not to repeat previous errors!.*",
    errors=[
        (
            "import",
            r"Code execution failed at line '.*' due to: InterpreterError: Import of (?P<module>\w+) is not .*",
        ),
        ("time", r"Code execution exceeded the maximum execution time of (?P<seconds>\d+) seconds"),
        ("code", r"Code execution failed at line '(?P<line>.*)' due to: (?P<type>\w+): (?P<message>.*)"),
        ("syntax", r"Code parsing failed on line (?P<line>\d+) due to: SyntaxError: (?P<message>.*?) \(.*"),
        ("check", r"Check \w+ failed with error: .*"),
        ("no code", r"Error in code parsing:\nYour code snippet is invalid.*"),
        ("no field", r"Error in code parsing:\n'(?P<field>\w+)'\n.*"),
        ("no call", r"Error while parsing tool call from model output: .* does not contain any JSON blob\."),
        ("unknown argument", r"Argument (?P<name>\w+) is not in the tool's input schema"),
        ("missing argument", r"Argument (?P<name>\w+) is required"),
        ("type of argument", r"Argument (?P<name>\w+) has type '.*' but should be '(?P<type>\w+)'"),
        ("unknown tool", r"Unknown tool (?P<name>\w+), should be one of: (?P<known>.*)\."),
        (
            "tool",
            r"Error executing tool '(?P<name>\w+)' with arguments (?P<arguments>.*):"
            r" (?P<type>\w+): (?P<message>.*)\nPlease try again or use another tool",
        ),
        (
            "answer not alone",
            r"If you want to return an answer, please do not perform any other tool calls.*",
        ),
    ],
    calls=_python_calls,
)

_CADRE_TOOL = r"Error executing tool '(?P<name>\w+)' with arguments (?P<arguments>.*): (?P<type>\w+): (?P<message>.*)"

CADRE = Dialect(
    of_user={
        "task": r"New task:\n",
        "observation": r"Observation:\n",
        "error": r"Error: ",
        "proceed": r"Now carry out this plan, step by step\.",
        "survey": r"You prepare the work on a task",
        "new_plan": r"With that history in mind, bring the facts up to date and plan anew\.",
        "answer_now": r"Answer this task now, from the record above",
    },
    of_assistant={
        "calls": r"Calling tools:\n",
        "ran": r"Code that was run:\n",
        "first_plan": r"These are the facts I have and the plan I will follow to solve the task:\n```\n",
        "later_plan": r"The task is not solved yet\. These are the facts as they stand now and my new plan:\n```\n",
    },
    final_system=r"^An agent worked on a task .*used up its steps",
    update_system=r"^You look over work in progress",
    variables="\n\nThese additional arguments come with the task; use them by their names:\n",
    share=r"^You are '\w+', a member of a team\..*?\n---\n(.*?)\n---\n",
    report=r"^Report of the team member '(\w+)':\n",
    summary=r"\n+How '\w+' went about it, message by message:\n<summary_of_work>(.*)</summary_of_work>",
    named=r"\A\w+: ",
    after_error=r"\nDo not repeat what led to this error\..*",
    errors=[
        (
            "import",
            r"Code execution failed at line '.*' due to: NotAllowed: import of (?P<module>\w+) is not .*",
        ),
        (
            "time",
            r"Code execution stopped \(at line '.*'\): The code was stopped after (?P<seconds>\d+) s of computing.*",
        ),
        # A tool's own error, raised in the code by the name of CallError.
        (
            "code",
            r"Code execution failed at line '(?P<line>.*)' due to: CallError: "
            + re.sub(r"\?P<(name|arguments)>", "?:", _CADRE_TOOL),
        ),
        ("code", r"Code execution failed at line '(?P<line>.*)' due to: (?P<type>\w+): (?P<message>.*)"),
        ("syntax", r"Code parsing failed on line (?P<line>\d+) due to: SyntaxError: (?P<message>.*?) \(.*"),
        ("check", r"Check ['\"].*['\"] failed: .*"),
        ("check", r"The answer does not fit the output schema: .*"),
        ("no code", r"Your answer holds no block of code\..*"),
        (
            "no field",
            r"Your answer is not the JSON object .*: Object missing required field `(?P<field>\w+)`\..*",
        ),
        ("no call", r"Your answer holds no tool call\..*"),
        (
            "unknown argument",
            r"Wrong arguments for '\w+': Additional properties are not allowed \('(?P<name>\w+)' was unexpected\)",
        ),
        ("missing argument", r"Wrong arguments for '\w+': \"(?P<name>\w+)\" is a required property"),
        (
            "type of argument",
            r"Wrong arguments for '\w+': argument (?P<name>\w+): .* is not of type \"(?P<type>\w+)\"",
        ),
        ("unknown tool", r"Unknown tool '(?P<name>\w+)', should be one of: (?P<known>.*)\."),
        ("tool", _CADRE_TOOL),
        ("answer not alone", r"`final_answer` must be the only call of a step.*"),
    ],
    calls=_line_calls,
)
