"""The tool of a service that has one process alone."""

from cadre import tool


@tool(idempotent=True)
def fetch(job: str) -> str:
    """Fetch something.

    Args:
        job: What to fetch.
    """
    return f"ok:fetch:{job}"
