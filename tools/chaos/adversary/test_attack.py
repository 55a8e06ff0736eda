"""A short attack, as `make chaos` does it behind its kills: the audit finds nothing."""

import asyncio

import pytest

from chaos.adversary.campaign import attack
from chaos.campaign import KEPT

SECONDS = 6
SEED = 2


@pytest.mark.timeout(400)
def test_a_short_attack() -> None:
    attacked = asyncio.run(attack(SEED, SECONDS, KEPT / "test-adversary"))
    assert attacked.violations == [], attacked.summary()
    assert attacked.strikes >= 4
    assert len(attacked.seen.rulings) >= 2
    assert attacked.seen.budgets
    assert attacked.seen.memories
