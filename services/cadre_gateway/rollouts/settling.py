"""What becomes of a rollout by itself: queues that are there now are opened, those of drained revisions go. Pure."""

from collections.abc import Mapping

from msgspec.structs import replace

from cadre.protocol.rollout import Rollout, Share

QUIET_SECONDS = 10.0
"""After a change everybody has heard of it: who passes a record on as things stood before does not ack it by then."""


def settled(
    rollout: Rollout,
    open_runs: Mapping[str, int] | None,
    waiting: Mapping[int, int],
    now: float,
    beside: Mapping[str, str] | None = None,
) -> Rollout:
    """The rollout as it is to be by now, once the queues of all its shares are there; the same one when it is so.

    `open_runs` are those of each revision, None while they are not known; `waiting` the messages of each slot that wait
    or are in hand, `beside` what the objects are called that the live revisions are in.
    """
    homes = beside or {}
    is_quiet = now - rollout.changed_at >= QUIET_SECONDS
    shares: list[Share] = []
    for share in rollout.shares:
        share = replace(share, beside=homes.get(share.revision, share.beside))
        if share.state == "opening":
            shares.append(replace(share, state="open"))
            continue
        is_empty = is_quiet and not waiting.get(share.slot)
        if share.state == "closing" and is_empty:
            continue
        has_ended = open_runs is not None and not open_runs.get(share.revision)
        is_drained = is_empty and not share.weight and has_ended
        if share.state == "open" and is_drained and not _is_needed(rollout, share):
            share = replace(share, state="closing")
        shares.append(share)
    return rollout if shares == rollout.shares else replace(rollout, shares=shares)


def _is_needed(rollout: Rollout, share: Share) -> bool:
    """Whether it is the last one, or goes on with the runs of another one."""
    others = [one for one in rollout.shares if one.revision != share.revision]
    return not any(one.weight for one in others) or any(one.adopted_by == share.revision for one in others)
