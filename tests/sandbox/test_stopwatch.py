"""The stopwatch within a jail: once the work is over, no exception of a limit comes any more."""

import signal
from collections.abc import Iterator

import pytest

from cadre_sandbox.jail import stopwatch
from cadre_sandbox.jail.stopwatch import Stopwatch, TimeLimit


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stopwatch]:
    """One whose alarms come as thick as they do where a process seldom gets the processor."""
    monkeypatch.setattr(stopwatch, "_REPEAT_SECONDS", 0.00002)
    monkeypatch.setattr(stopwatch, "_MIN_GAP_SECONDS", 0.0)
    before = {number: signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGPROF)}
    watch = Stopwatch()
    watch.install()
    yield watch
    watch.rest()
    for number, handler in before.items():
        signal.signal(number, handler)


def spin() -> None:
    while True:
        pass


def test_the_time_rests_when_the_work_is_over(watch: Stopwatch) -> None:
    for _ in range(100):
        watch.reset(0.0003, 60.0)
        with pytest.raises(TimeLimit):
            watch.timed(spin)
        for _ in range(100):
            len("an exception here would end the interpreter")
