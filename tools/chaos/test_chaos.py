"""A short chaos, as `make chaos` does it: every fault that must be, and every invariant holds."""

import asyncio

import pytest

from chaos.campaign import KEPT, campaign
from chaos.crew import groups
from chaos.report import summary
from chaos.schedule import MUST

SECONDS = 11
SEED = 452
"""One whose faults are soon over, and some of which hit agents of the other kinds."""
SMALLER = groups(others=1)


@pytest.mark.timeout(400)
def test_a_short_chaos() -> None:
    outcome = asyncio.run(campaign(SEED, SECONDS, KEPT / "test", SMALLER))
    assert outcome.violations == [], summary(outcome)
    struck = {(strike.kind, strike.victim.partition("-")[0]) for strike in outcome.evidence.strikes}
    assert struck >= set(MUST)
    assert len(outcome.evidence.orders) >= 5
