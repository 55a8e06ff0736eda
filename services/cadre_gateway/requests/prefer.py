"""The `Prefer` header (RFC 7240), of which only `wait` is honoured."""

import re

MAX_WAIT_SECONDS = 600.0

_WAIT = re.compile(r'wait\s*=\s*"?(\d{1,9})"?', re.IGNORECASE)


def wait_seconds(prefer: str | None) -> float:
    """Seconds the client would wait for the result, at most MAX_WAIT_SECONDS; 0 when it named none."""
    for preference in (prefer or "").split(","):
        if found := _WAIT.fullmatch(preference.partition(";")[0].strip()):
            return min(float(found[1]), MAX_WAIT_SECONDS)
    return 0.0
