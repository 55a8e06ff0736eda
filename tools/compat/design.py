"""Differences by design, taken out of both sides, so that all the rest must be equal (docs/guarantees.md)."""

import ast
import json
from typing import Any

from compat.case import Case
from compat.conversations import Request
from compat.dialect import CADRE, SMOLAGENTS
from compat.facts import Fact, Turn, turns_of

_OF_CALLS = ("called", "observed")


def by_smolagents(request: Request) -> list[Turn]:
    turns = _values_of_expressions(_lines_outside_functions(turns_of(request, SMOLAGENTS)))
    turns = [(role, _work_without_answer(_images_once(_said_once(facts)))) for role, facts in turns]
    return _answers_said(turns)


def by_cadre(request: Request) -> list[Turn]:
    turns = _failed_steps_forgotten(_lines_outside_functions(turns_of(request, CADRE)))
    return _answers_of_code_once(turns)


def steps_by_smolagents(case: Case, steps: list[list[Any]]) -> list[list[Any]]:
    """Steps as callbacks heard of them: the last answer beyond the last step is one more to smolagents, and a call
    that was not made an error of its execution."""
    told = [step for step in steps if step[-1] != "AgentMaxStepsError"]
    return [[step[0], "AgentToolCallError"] if step[-1] and case.name in _NOT_MADE else step for step in told]


_NOT_MADE = ("unknown-tool", "answer-not-alone")


def _images_once(facts: tuple[Fact, ...]) -> tuple[Fact, ...]:
    """smolagents shows a task's images again with every step."""
    has_task = any(fact[0] == "task" for fact in facts)
    return tuple(fact for fact in facts if has_task or fact != ("image",))


def _work_without_answer(facts: tuple[Fact, ...]) -> tuple[Fact, ...]:
    """smolagents' summary of a member's work ends with the answer, which the report before it has already."""
    return tuple(("summary", fact[1][:-2], fact[2]) if fact[0] == "summary" else fact for fact in facts)


def _said_once(facts: tuple[Fact, ...]) -> tuple[Fact, ...]:
    """smolagents writes a call out behind the model's text even when it stands in that text."""
    said = "\n".join(fact[1] for fact in facts if fact[0] == "said")
    return tuple(fact for fact in facts if not _stands_in(fact, said))


def _stands_in(fact: Fact, said: str) -> bool:
    if fact[0] == "ran":
        # In structured mode the text is JSON that holds the code as a string.
        return fact[1] in said or json.dumps(fact[1])[1:-1] in said
    return fact[0] == "called" and f'"{fact[1]}"' in said and fact[2] in said


def _values_of_expressions(turns: list[Turn]) -> list[Turn]:
    """smolagents gives a value to assignments and definitions; in Python only an expression has one."""
    code, seen = "", []
    for role, facts in turns:
        code = next((fact[1] for fact in facts if fact[0] == "ran"), code)
        if any(fact[0] == "value" for fact in facts) and not isinstance(ast.parse(code).body[-1], ast.Expr):
            facts = tuple(("value", "None") if fact[0] == "value" else fact for fact in facts)
        seen.append((role, facts))
    return seen


def _answers_said(turns: list[Turn]) -> list[Turn]:
    """To a session that goes on smolagents shows an answer as a call with a result, Cadre as what was said."""
    seen: list[Turn] = []
    for role, facts in turns:
        if seen and any(fact[:2] == ("called", "final_answer") for fact in seen[-1][1]):
            answer = json.loads(seen[-1][1][-1][2])["answer"]
            assert facts[0] == ("observed", answer)
            seen[-1] = (seen[-1][0], (*seen[-1][1][:-1], ("said", answer)))
            facts = facts[1:]
        seen.append((role, facts))
    return seen


def _answers_of_code_once(turns: list[Turn]) -> list[Turn]:
    """Cadre says the answer that code gave once more, as the agent's own words."""
    kept: list[Turn] = []
    for role, facts in turns:
        value = kept[-1][1][-1] if kept else ("nothing",)
        if role == "assistant" and value[0] == "value" and facts == (("said", value[1]),):
            continue
        if kept and kept[-1][0] == role:
            kept[-1] = (role, kept[-1][1] + facts)
        else:
            kept.append((role, facts))
    return kept


def _lines_outside_functions(turns: list[Turn]) -> list[Turn]:
    """Of an error within a function smolagents quotes the line that called it, Cadre the line that failed."""
    has_function, seen = False, []
    for role, facts in turns:
        if role == "assistant":
            has_function = any("def " in fact[1] for fact in facts if fact[0] in ("said", "ran"))
        elif has_function:
            facts = tuple(_without_line(fact) for fact in facts)
        seen.append((role, facts))
    return seen


def _without_line(fact: Fact) -> Fact:
    if fact[:2] != ("error", "code"):
        return fact
    return (*fact[:2], {name: value for name, value in fact[2].items() if name != "line"})


def _failed_steps_forgotten(turns: list[Turn]) -> list[Turn]:
    """smolagents forgets the calls of a step in which one failed, and the results of the others with them."""
    left: list[Turn] = []
    for at, (role, facts) in enumerate(turns):
        asked, told = (facts, turns[at + 1][1] if at + 1 < len(turns) else ()) if role == "assistant" else ((), ())
        if role == "user" and at:
            asked, told = turns[at - 1][1], facts
        if any(fact[0] == "called" for fact in asked) and any(fact[0] == "error" for fact in told):
            facts = tuple(fact for fact in facts if fact[0] not in _OF_CALLS)
        if left and (not facts or left[-1][0] == role):
            left[-1] = (left[-1][0], left[-1][1] + facts)
        else:
            left.append((role, facts))
    return left
