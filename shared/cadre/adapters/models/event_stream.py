"""Reads the body of an endpoint's answer, a stream of events or one whole JSON value, by what it is and not by what was
asked for: some endpoints send the other one, or an error in the place of a stream. Pure, over the bytes as they come.
"""

import codecs
import json
import re
from collections.abc import AsyncIterator
from typing import Any, Final

END_OF_STREAM: Final = object()
"""The marker for `[DONE]`, or for the end of a whole answer."""

_SIGNS_OF_LIFE = ("ping", "heartbeat", "keep-alive", "keepalive")
_FIELD = re.compile(r"(?:data|event|id|retry|error)?:|(?:data|event|id|retry)$")
_DONE = re.compile(r"\"?(?:\[DONE\]|DONE$)", re.IGNORECASE)
_TWICE = re.compile(r"\A(?:data:\s*)+")
_SPACES = re.compile(r"\s*")
_DECODER = json.JSONDecoder(strict=False)


class MalformedBody(Exception):
    """A body, or an event of one, that is no JSON; `is_page`: it is HTML."""

    def __init__(self, reason: str, *, is_page: bool = False) -> None:
        super().__init__(reason)
        self.is_page = is_page


async def read_body(chunks: AsyncIterator[bytes]) -> AsyncIterator[Any]:
    """Yield the JSON value of each event, or that of the whole body; END_OF_STREAM where the endpoint marks the end.

    An event called `error`, and llama.cpp's field of that name, are given as `{"error": …}`. Comments, blank events,
    signs of life and blank lines before a body pass over. Raises MalformedBody.
    """
    whole: list[str] = []
    event = ""
    data: list[str] = []
    async for line in _lines(chunks):
        if whole or (line.strip() and not event and not data and not _FIELD.match(line)):
            whole.append(line)
        elif not line.strip():
            for value in _values(event, data):
                yield value
            event, data = "", []
        elif not line.startswith(":"):
            name, _, value = line.partition(":")
            if name == "data":
                data.append(value.removeprefix(" "))
            elif name == "error":
                event = name
                data.append(value)
            elif name == "event":
                event = value.strip()
    if whole:
        for value in _apart(whole):
            yield value
        yield END_OF_STREAM
    for value in _values(event, data):
        yield value


def _values(event: str, data: list[str]) -> list[Any]:
    text = _TWICE.sub("", "\n".join(data).strip())
    if not text:
        return []
    if _DONE.match(text):
        return [END_OF_STREAM]
    if text.strip("[]").casefold() in _SIGNS_OF_LIFE:
        return []
    if event == "error":
        try:
            value = _decoded(text)
        except MalformedBody:
            value = text
        return [value if isinstance(value, dict) and value.get("error") else {"error": value}]
    try:
        value = _decoded(text)
    except MalformedBody:
        if len(data) == 1:
            return _one_behind_the_other(text)
        # No blank line stands between the events of some endpoints.
        return [value for line in data for value in _values(event, [line])]
    return [] if value is None else [value]


def _apart(lines: list[str]) -> list[Any]:
    """Return the value of a whole body; those of its lines where each line is one."""
    try:
        value = _decoded("\n".join(lines).strip())
        # Some gateways write the JSON of an answer into a text of JSON.
        return [_decoded(value) if isinstance(value, str) and value.lstrip().startswith("{") else value]
    except MalformedBody:
        begun = [line for line in lines if line.strip()]
        if len(begun) == 1 or not all(line.lstrip().startswith("{") for line in begun):
            raise
        return [_decoded(line) for line in begun]


def _decoded(text: str) -> Any:
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise MalformedBody(str(error), is_page=text.startswith("<")) from error


def _one_behind_the_other(text: str) -> list[Any]:
    """Return the objects of a line that holds several, as some proxies join them. Raises MalformedBody."""
    values: list[Any] = []
    at = 0
    while at < len(text):
        try:
            value, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise MalformedBody(str(error), is_page=text.startswith("<")) from error
        if not isinstance(value, dict):
            raise MalformedBody("a line of the stream holds more than one value")
        values.append(value)
        at = _SPACES.match(text, end).end()  # type: ignore[union-attr]
    return values


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """Yield lines without their ends. A line that comes in very many pieces is joined once."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    held: list[str] = []
    carried = ""
    async for chunk in chunks:
        text = carried + _text(decoder, chunk)
        # A bare \r at the end may be half of a line's end.
        carried = "\r" if text.endswith("\r") else ""
        *whole, last = text.removesuffix("\r").replace("\r\n", "\n").replace("\r", "\n").split("\n")
        for line in whole:
            yield "".join([*held, line])
            held = []
        held.append(last)
    held.append(_text(decoder, b"", final=True))
    if rest := "".join(held):
        yield rest
    if carried:
        yield ""


def _text(decoder: codecs.IncrementalDecoder, chunk: bytes, *, final: bool = False) -> str:
    try:
        return decoder.decode(chunk, final)
    except UnicodeDecodeError as error:
        raise MalformedBody(str(error)) from error
