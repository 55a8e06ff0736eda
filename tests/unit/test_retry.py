"""Retries: what is repeated, how long it pauses, what it warns of."""

import pytest

from cadre.delivery.retry import retry
from cadre.errors import BlobMissing, BusUnavailable


class Flaky:
    """Fails as often as it is asked to, then returns the number of the try."""

    def __init__(self, failures: int) -> None:
        self.left = failures
        self.tries = 0
        self.slept: list[float] = []

    async def __call__(self) -> int:
        self.tries += 1
        if self.tries <= self.left:
            raise BusUnavailable("asking", "nobody there")
        return self.tries

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


async def test_pauses_grow_and_the_last_one_stays(caplog: pytest.LogCaptureFixture) -> None:
    flaky = Flaky(4)
    assert await retry(flaky, flaky.sleep, pauses=(0.1, 0.5), doing="counting") == 5
    assert flaky.slept == [0.1, 0.5, 0.5, 0.5]
    assert caplog.messages[0].startswith("counting: ")
    assert caplog.messages[0].endswith("; trying again in 0.1 s")


async def test_any_other_error_is_raised_at_once() -> None:
    async def lost() -> None:
        raise BlobMissing("blob:0")

    with pytest.raises(BlobMissing):
        await retry(lost)


async def test_a_line_about_a_retry_is_of_no_service_in_particular(caplog: pytest.LogCaptureFixture) -> None:
    flaky = Flaky(1)
    await retry(flaky, flaky.sleep)
    assert [record.name for record in caplog.records] == ["cadre.retry"]
