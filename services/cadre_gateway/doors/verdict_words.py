"""A person's word on held calls, as people write it in a chat."""

import re
from typing import NamedTuple

from cadre.protocol.messages import Verdict

_YES = frozenset({"approve", "approved", "yes", "y", "ok", "okay", "allow", "allowed", "go ahead", "do it"})
_REJECT = re.compile(r"(?:reject(?:ed)?|deny|denied|no|n)\b[\s,.:;!—-]*", re.IGNORECASE)


class PersonsWord(NamedTuple):
    """A person's word on a call that waits for one."""

    verdict: Verdict
    feedback: str = ""


def word_in(text: str) -> PersonsWord | None:
    """The word that the text says, with what it says beside it; None for any other text."""
    plain = text.strip()
    if plain.rstrip(" .!").lower() in _YES:
        return PersonsWord("approved")
    head, _, rest = plain.partition(" ")
    if head.lower().rstrip(",.:;!") in ("approve", "approved"):
        return PersonsWord("approved", rest.strip())
    if found := _REJECT.match(plain):
        return PersonsWord("rejected", plain[found.end() :].strip())
    return None
