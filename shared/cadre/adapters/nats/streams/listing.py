"""Lists of what a stream has, page by page: its messages, its subjects, its consumers."""

from collections.abc import AsyncIterator
from typing import Any

from nats.aio.client import Client

from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.jetstream import StoredMessage

_PAGE = 128


async def messages(nc: Client, stream: str, subject: str, after: int = 0) -> AsyncIterator[StoredMessage]:
    """The messages on the subject (wildcards allowed) behind sequence `after`, as any replica has them. Raises
    BusUnavailable."""
    while page := await jetstream.batch(
        nc, stream, {"seq": after + 1, "batch": _PAGE, "next_by_subj": subject}
    ):
        for message in page:
            yield message
        after = page[-1].seq


async def newest(
    nc: Client, stream: str, limit: int, before: int | None = None, subject: str = ">"
) -> list[StoredMessage]:
    """At most `limit` messages of the stream, newest first; with `before`, those below that sequence. Raises
    BusUnavailable."""
    answer = await jetstream.ask(nc, f"asking for {stream}", f"STREAM.INFO.{stream}")
    first, end = answer["state"]["first_seq"], answer["state"]["last_seq"] + 1
    end = min(end, before) if before is not None else end
    found: list[StoredMessage] = []
    width = limit
    while len(found) < limit and end > max(first, 1):
        # Removed messages leave gaps: each look back is twice as wide.
        begin = max(first, end - width, 1)
        query = {"seq": begin, "batch": width, "next_by_subj": subject}
        page = [held for held in await jetstream.batch(nc, stream, query) if held.seq < end]
        found += reversed(page)
        end, width = begin, 2 * width
    return found[:limit]


async def subjects(nc: Client, stream: str, wanted: str) -> list[str]:
    """The subjects that match and hold messages, as the stream's leader has them. Raises BusUnavailable."""
    found: list[str] = []
    while True:
        query = {"subjects_filter": wanted, "offset": len(found)}
        answer = await jetstream.ask(nc, f"listing {wanted}", f"STREAM.INFO.{stream}", query)
        page = answer["state"].get("subjects") or {}
        found += page
        if not page or len(found) >= answer.get("total", 0):
            return found


async def consumers(nc: Client, stream: str) -> list[dict[str, Any]]:
    """All consumers of the stream, each as the JetStream API describes it, but those whose servers are away.
    Raises BusUnavailable."""
    found: list[dict[str, Any]] = []
    told = 0
    while True:
        doing = f"asking for the consumers of {stream}"
        answer = await jetstream.ask(nc, doing, f"CONSUMER.LIST.{stream}", {"offset": told})
        page = answer.get("consumers") or []
        found += page
        # The server has waited four seconds for what is missing. Asked for it again it waits as long.
        told += len(page) + len(answer.get("missing") or ())
        if not page or told >= answer["total"]:
            return found
