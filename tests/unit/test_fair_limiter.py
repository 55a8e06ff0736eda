"""Turns at the places of a process: by tree, never more than there are, none lost when a waiter gives up."""

import asyncio
import random

import pytest

from cadre.delivery.fair_limiter import FairLimiter


class Work:
    """Begins to work for trees, in the order in which places are given, until asked to end."""

    def __init__(self, limiter: FairLimiter) -> None:
        self.limiter = limiter
        self.begun: list[str] = []
        self.at_work = 0
        self.most = 0
        self._ends: list[asyncio.Event] = []
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, tree: str, limiter: FairLimiter | None = None) -> asyncio.Task[None]:
        task = asyncio.create_task(self._work(tree, limiter or self.limiter))
        self._tasks.append(task)
        return task

    async def _work(self, tree: str, limiter: FairLimiter) -> None:
        async with limiter.acquire(tree):
            self.begun.append(tree)
            self.at_work += 1
            self.most = max(self.most, self.at_work)
            end = asyncio.Event()
            self._ends.append(end)
            try:
                await end.wait()
            finally:
                self.at_work -= 1

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def end_one(self) -> None:
        self._ends.pop(0).set()
        await self.settle()

    async def end_all(self) -> None:
        while self._ends:
            await self.end_one()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def test_a_large_tree_waits_between_the_small_ones() -> None:
    work = Work(FairLimiter(1))
    for tree in ["big"] * 6 + ["a", "b", "b", "c"]:
        work.start(tree)
    await work.settle()
    await work.end_all()
    # The first was free; then big, a, b, c take turns until only the big one is left.
    assert work.begun == ["big", "big", "a", "b", "c", "big", "b", "big", "big", "big"]
    assert work.most == 1


@pytest.mark.parametrize("seed", range(20))
async def test_never_more_than_there_are_and_none_is_lost(seed: int) -> None:
    chance = random.Random(seed)
    work = Work(FairLimiter(4))
    tasks = [work.start(chance.choice("abc")) for _ in range(60)]
    await work.settle()
    for task in chance.sample(tasks, 25):
        task.cancel()
        if chance.random() < 0.5:
            await work.settle()
        if work._ends and chance.random() < 0.5:
            await work.end_one()
    await work.settle()
    await work.end_all()
    assert work.most <= 4
    assert (work.at_work, work.limiter._free) == (0, 4)
    assert all(task.done() for task in tasks)


async def test_a_turn_given_to_one_who_leaves_goes_to_the_next() -> None:
    work = Work(FairLimiter(1))
    work.start("a")
    leaver, next_one = work.start("b"), work.start("c")
    await work.settle()
    work._ends.pop(0).set()
    await asyncio.sleep(0)  # the place is given to b, which has not woken yet
    leaver.cancel()
    await work.settle()
    assert work.begun == ["a", "c"]
    await work.end_all()
    assert next_one.done()


async def test_limiters_within_limiters_bound_both() -> None:
    whole = FairLimiter(3)
    narrow, wide = FairLimiter(1, within=whole), FairLimiter(3, within=whole)
    work = Work(whole)
    for tree in "abc":
        work.start(tree, narrow)
        work.start(tree, wide)
    await work.settle()
    assert work.at_work == 3
    assert len([tree for tree in work.begun if tree == "a"]) == 2
    await work.end_all()
    assert sorted(work.begun) == ["a", "a", "b", "b", "c", "c"]
    assert work.most == 3


async def test_what_is_left_at_work_keeps_a_place_of_its_own_and_none_of_the_whole() -> None:
    whole = FairLimiter(2)
    narrow = FairLimiter(1, within=whole)
    work = Work(whole)
    left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    work.start("a", narrow)
    await work.settle()
    narrow.hold_until_done(left)
    assert narrow.room == 1, "it counts as in hand"
    work.start("b", narrow)
    await work.end_one()
    assert work.begun == ["a"]
    for tree in "cd":
        work.start(tree)
    await work.settle()
    assert work.begun == ["a", "c", "d"]
    await work.end_one()
    await work.end_one()
    left.set_result(None)
    await work.settle()
    assert work.begun == ["a", "c", "d", "b"]
    await work.end_all()
    assert (narrow._free, whole._free, narrow.room) == (1, 2, 2)


async def test_room_is_told_when_there_is_some() -> None:
    limiter = FairLimiter(2, queues=2)
    assert (limiter.queue_share, limiter.room) == (2, 4)
    rooms: list[int] = []
    for _ in range(5):
        limiter.add_in_hand()
    assert limiter.room == 0
    limiter.when_room(lambda: rooms.append(limiter.room))
    limiter.remove_in_hand()
    assert rooms == [0]
    limiter.remove_in_hand()
    assert (rooms, limiter.room) == ([0], 1), "called once"
