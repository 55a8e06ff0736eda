"""Follows a run for a call, which is told what happens as its progress."""

from __future__ import annotations

import contextlib

from cadre_gateway.doors.following import Answers
from cadre_gateway.doors.mcp.call_context import Context
from cadre_gateway.doors.progress import Place, Progress


async def follow(
    answers: Answers, run: str, context: Context, decided: frozenset[str] = frozenset()
) -> Progress:
    """Return the run's progress once the run has ended or waits for a person, which may be at once. Report progress
    even for a run that ended before. Calls that were `decided` are not waited for, however late their run learns of
    the decision. Raise a problem."""
    known = await answers.so_far(Place(run))
    if known.held.keys() - decided:
        return known
    # What waited before was decided: the next pause counts.
    progress, told = Progress(run, known.pauses[-1].seq if known.pauses else 0), 0
    async with contextlib.aclosing(answers.follow(progress)) as news:
        async for one in news:
            for line in one.lines:
                told += 1
                await context.session.report_progress(told, None, line)
    return progress
