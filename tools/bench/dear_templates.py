"""The dearest templates that pass: each operation that templates may use, over values that are worst for it, in loops
that take all the work that is allowed. `python -m bench.dear_templates` measures them and prints the dearest."""

import gc
import random
import sys
import time
from typing import Any

from cadre.spec.expressions import environment
from cadre.spec.templates.template_work import MAX_WORK
from harness.template_work import operations, values

SIZES = (30, 1_000, 30_000, 1_000_000)
LOOPS = (1, 10, 100, 1_000, 10_000, 100_000)


def deep(levels: int) -> Any:
    """Lists in each other."""
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


def measured(template: str, given: dict[str, Any]) -> tuple[float, bool, str]:
    """Milliseconds of processor time that a rendering takes, whether it passes, and why not."""
    compiled = environment().from_string(template)
    begun = time.thread_time()
    try:
        compiled.render(given)
        why = ""
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
    return (time.thread_time() - begun) * 1e3, not why, why


def search(seconds: float, seed: int) -> list[tuple[float, bool, str, str, str]]:
    """The dearest renderings that were found in so many seconds: operations, values and loops at random."""
    from datetime import UTC, datetime

    chance = random.Random(seed)
    known = [*operations()]
    made = [pair for size in SIZES for pair in values(size)] + [
        ("deep 90", deep(90)),
        ("deep 900", deep(900)),
    ]
    found: list[tuple[float, bool, str, str, str]] = []
    gc.freeze()  # else collections of the values above are measured too
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        operation, loop = chance.choice(known), chance.choice(LOOPS)
        (x, value), (y, other) = chance.choice(made), chance.choice(made)
        text = operation.replace("LOOP", str(loop))
        if text == operation:
            text = f"{{% for turn in range({min(loop, 99_999)}) %}}{text}{{% endfor %}}" if loop > 1 else text
        given = {"x": value, "y": other, "n": 12345678901234567, "now": datetime(2026, 1, 2, tzinfo=UTC)}
        spent, passes, why = measured(text, given)
        found.append((spent, passes, text, f"x: {x}, y: {y}", why))
        found = sorted(found, key=lambda one: -one[0])[:40]
    return found


def main() -> None:
    """Prints the dearest renderings of a search of so many seconds."""
    seconds, seed = (float(sys.argv[1]), int(sys.argv[2])) if len(sys.argv) > 2 else (60.0, 1)
    print(f"the work that a rendering may take is {MAX_WORK:,} units")
    for spent, passes, text, given, why in search(seconds, seed):
        print(f"{spent:8.1f} ms  {'passes ' if passes else 'refused'}  {text[:110]}  {given}  {why[:70]}")


if __name__ == "__main__":
    main()
