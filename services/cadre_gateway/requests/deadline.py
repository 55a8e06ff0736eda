"""How long a request may take that only asks NATS."""

import asyncio

ANSWER_SECONDS = 6.0
"""All questions to NATS of one request together."""


def answer_deadline() -> asyncio.Timeout:
    """Limits the block to ANSWER_SECONDS; the TimeoutError becomes a 503 problem."""
    return asyncio.timeout(ANSWER_SECONDS)
