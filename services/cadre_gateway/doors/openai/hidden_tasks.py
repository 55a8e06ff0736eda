"""The requests that chat programs make behind the chat: titles, tags, follow-up questions, searches.

Each would be a run of the whole team. They are answered at once, as far as that needs no model: a title are the first
words of the chat, and there are no tags, questions or searches.
"""

import json
import re

_USER = re.compile(r"^[ \t]*USER:(.*)", re.IGNORECASE | re.MULTILINE)
_TITLE_WORDS = 5

_EMPTY: dict[str, object] = {"tags": [], "follow_ups": [], "queries": [], "text": "", "prompt": ""}
"""What each kind of request is answered, by the key of the JSON that it asks for."""


def answer_of(text: str) -> str | None:
    """The answer to such a request, which Open WebUI begins with `### Task:`; None for what a person has said."""
    # Its own words ask for the form; the chat below them may say anything.
    asked, begin, rest = text.partition("<chat_history>")
    chat, end, _ = rest.partition("</chat_history>")
    if not text.lstrip().startswith("### Task:") or not begin or not end:
        return None
    if '"title"' in asked:
        return json.dumps({"title": _title(chat)}, ensure_ascii=False)
    key = next((key for key in _EMPTY if f'"{key}"' in asked), None)
    return json.dumps({key: _EMPTY[key]}) if key is not None else None


def _title(chat: str) -> str:
    said = next((one[1] for one in _USER.finditer(chat) if one[1].strip()), chat)
    words = said.split()
    return " ".join(words[:_TITLE_WORDS]).rstrip(".,:;!?") or "Chat"
