"""Read a person's decision on pending calls, from JSON `{verdict, arguments, feedback}` or from a word in a chat."""

import re
from typing import Any, NamedTuple, get_args

from cadre.protocol.messages import Verdict
from cadre_gateway.access.principal import Principal
from cadre_gateway.access.reach import CallerReach
from cadre_gateway.doors.progress import PendingAnswer, Progress
from cadre_gateway.requests.body import Ruling
from cadre_gateway.requests.problems import invalid

OVERTAKEN = frozenset({"already-decided", "approval-expired", "approval-dropped", "run-ended"})
"""Codes of the problems that say that a decision came after what has settled its call."""

ASK_USER = "ask_user"
"""The tool whose call is answered by what a person says."""

_YES = frozenset({"approve", "approved", "yes", "y", "ok", "okay", "allow", "allowed", "go ahead", "do it"})
_REJECT = re.compile(r"(?:reject(?:ed)?|deny|denied|no|n)\b[\s,.:;!—-]*", re.IGNORECASE)


async def questions_for(reach: CallerReach, caller: Principal, progress: Progress) -> dict[str, PendingAnswer]:
    """Return the calls that wait for a person, if the caller reaches calls of this tree. Raise RetryableError."""
    asked = progress.questions
    return asked if asked and await reach.has(caller, "call", next(iter(asked))) else {}


def said(verdict: Verdict, by: str, feedback: str = "", arguments: dict[str, Any] | None = None) -> Ruling:
    """Return a person's decision; `arguments` take the place of the call's own of the same names."""
    return Ruling(verdict=verdict, feedback=feedback, tool=None, arguments=arguments, replace=False, by=by)


def ruling_of(data: dict[str, Any], by: str) -> Ruling:
    """Return the decision that the data says: with arguments a call is corrected. Raises a 422 problem."""
    verdict: Verdict = data.get("verdict")  # type: ignore[assignment]  # the next line checks it
    arguments = data.get("arguments")
    if verdict not in get_args(Verdict) or not isinstance(arguments, dict | None):
        raise invalid(
            "a call that waits is answered with {verdict: approved | rejected | corrected, arguments, feedback}"
        )
    feedback = str(data.get("feedback", ""))
    if arguments is not None and verdict != "rejected":
        return said("corrected", by, feedback, arguments)
    return said(verdict, by, feedback)


class PersonsWord(NamedTuple):
    """A person's word on a call that waits for one."""

    verdict: Verdict
    feedback: str = ""


def word_in(text: str) -> PersonsWord | None:
    """Return the word that the text says, with the rest of the text; None for any other text."""
    plain = text.strip()
    if plain.rstrip(" .!").lower() in _YES:
        return PersonsWord("approved")
    head, _, rest = plain.partition(" ")
    if head.lower().rstrip(",.:;!") in ("approve", "approved"):
        return PersonsWord("approved", rest.strip())
    if found := _REJECT.match(plain):
        return PersonsWord("rejected", plain[found.end() :].strip())
    return None
