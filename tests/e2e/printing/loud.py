"""A tool that prints in every way that there is, and has its process end in some."""

import ctypes
import os
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

from cadre import tool

LONG = 1_000_000

ENDED = Path(os.environ["ENDED"])
"""The ways in which the process was ended."""

sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
print("printed at the import")
os.write(2, b"written at the import\n")


@tool(idempotent=True)
def say(way: str) -> str:
    """Print.

    Args:
        way: How to.
    """
    match way:
        case "print":
            print("printed by the tool")
            print("printed as an error", file=sys.stderr)
            print("a line\x85of some\u2028parts")
            print("L" * LONG)
            print("begun by the tool", end="")
        case "bytes":
            sys.stdout.buffer.write(b"bytes \xff\xfe\n")
            sys.stdout.buffer.flush()
            os.write(1, b"written to 1\n")
            os.write(2, b"written \xff to 2\n")
            os.write(2, b"W" * LONG + b"\n")
            os.write(2, b"begun ")
            os.write(2, b"and ended later\n")
        case "children":
            subprocess.run(["sh", "-c", "echo said by a child; echo complained by a child >&2"], check=True)
            children = [subprocess.Popen(["sh", "-c", f"echo {'C' * 20_000} >&2"]) for _ in range(5)]
            assert [child.wait() for child in children] == [0] * 5
        case "warn":
            warnings.warn("old habits", stacklevel=1)
            thread = threading.Thread(target=lambda: 1 / 0, name="careless")
            thread.start()
            thread.join()
    return f"{way} is done"


@tool(idempotent=True)
async def end(way: str) -> str:
    """End the process, the first time.

    Args:
        way: How to.
    """
    if _has_ended(way):
        return f"{way} is over"
    match way:
        case "exit":
            os.write(2, b"the last words")
            os._exit(3)
        case "fault":
            os.write(2, b"about to fail\n")
            ctypes.string_at(0)
        case "hang":
            time.sleep(60)  # noqa: ASYNC251 - so the event loop does not turn
    return f"{way} did not end it"


def _has_ended(way: str) -> bool:
    found = ENDED.read_text()
    ENDED.write_text(f"{found} {way}")
    return way in found
