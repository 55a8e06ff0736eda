"""Tools whose executions can be counted: each one is a line of the file that CHAOS_EFFECTS names."""

import os
import time

from cadre import ToolContext, tool


@tool
def spend(job: str, context: ToolContext) -> str:
    """Spend something that cannot be had back.

    Args:
        job: What for.
    """
    _leave_a_line("spend", job, context)
    time.sleep(0.2)
    return f"ok:spend:{job}"


@tool
def grind(job: str, context: ToolContext) -> str:
    """Change the world in the middle of a long piece of work.

    Args:
        job: What for.
    """
    time.sleep(0.6)
    _leave_a_line("grind", job, context)
    time.sleep(0.6)
    return f"ok:grind:{job}"


@tool(idempotent=True)
def post(job: str, context: ToolContext) -> str:
    """Post something under the call's id: once or twice is the same.

    Args:
        job: What to post.
    """
    _leave_a_line("post", job, context)
    time.sleep(0.3)
    return f"ok:post:{job}"


@tool(read_only=True)
def look(job: str, context: ToolContext) -> str:
    """Look at something.

    Args:
        job: What to look at.
    """
    _leave_a_line("look", job, context)
    time.sleep(0.2)
    return f"ok:look:{job}"


@tool(read_only=True)
def balk(job: str) -> str:
    """Look at something that is never there.

    Args:
        job: What to look at.
    """
    raise ValueError(f"{job} is not to be had")


def _leave_a_line(name: str, job: str, context: ToolContext) -> None:
    # One write to a file opened for appending: lines of several processes do not mix.
    line = f"{name} {context.call_id} {job} {os.getpid()}\n"
    file = os.open(os.environ["CHAOS_EFFECTS"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)
