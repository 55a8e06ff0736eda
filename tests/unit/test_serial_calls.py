"""Calls of serial tools go one after another in the order of the model; notes of results reach the model alone."""

import asyncio
from pathlib import Path
from typing import Any

from cadre import Agent, tool
from cadre.testing import Team, answer, call
from cadre.tools.loading import load_tools


class Desk:
    """Tools that note when they begin and end; a later call would end before an earlier one."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.at_work = 0
        self.most = 0
        self.all_began = asyncio.Event()

        @tool(serial=True)
        async def write(text: str) -> str:
            """Writes."""
            return await self.work(text)

        @tool(serial=True)
        async def read(text: str) -> str:
            """Reads."""
            return await self.work(text)

        @tool
        async def look(text: str) -> str:
            """Looks, once all that look have begun."""
            self.begun.append(text)
            if len([one for one in self.begun if one.startswith("look")]) == 3:
                self.all_began.set()
            await self.all_began.wait()
            return text

        self.tools: list[Any] = [write, read, look]

    async def work(self, text: str) -> str:
        self.begun.append(text)
        self.at_work += 1
        self.most = max(self.most, self.at_work)
        for _ in range(20):
            await asyncio.sleep(0)
        self.at_work -= 1
        if text == "fails":
            raise ValueError(text)
        return text


async def test_calls_of_serial_tools_keep_the_order_of_the_model() -> None:
    desk = Desk()
    asked = [
        call("write", text="1"),
        call("look", text="look 1"),
        call("read", text="2"),
        call("look", text="look 2"),
        call("write", text="fails"),
        call("read", text="4"),
        call("look", text="look 3"),
    ]
    agent = Agent(name="a", description="d", tools=["write", "read", "look"])
    async with Team([agent], desk.tools, [asked, answer("done")]) as team:
        assert await asyncio.wait_for(team.run("a", "T"), 30) == "done"
    assert [one for one in desk.begun if not one.startswith("look")] == ["1", "2", "fails", "4"]
    assert desk.most == 1
    assert len(desk.begun) == 7


async def test_a_held_call_holds_the_serial_calls_behind_it() -> None:
    desk = Desk()
    agent = Agent(name="a", description="d", tools=["write", "read"], approvals={"write": "always"})
    asked = [call("write", text="1"), call("read", text="2"), call("write", text="3")]
    async with Team([agent], desk.tools, [asked, answer("done")]) as team:
        run = await team.start("a", "T")
        await run.settle()
        assert desk.begun == []
        await run.approve("run1_1_0")
        await run.settle()
        assert desk.begun == ["1", "2"]
        await run.approve("run1_1_2")
        assert await run.result() == "done"
    assert desk.begun == ["1", "2", "3"]


async def test_code_that_gathers_serial_calls_has_them_in_order() -> None:
    desk = Desk()
    agent = Agent(name="a", description="d", kind="code", tools=["write", "read"])
    code = "<code>\nfinal_answer(gather(*[(write, read)[n % 2].later(str(n)) for n in range(5)]))\n</code>"
    async with Team([agent], desk.tools, [code]) as team:
        assert await team.run("a", "T") == ["0", "1", "2", "3", "4"]
    assert (desk.begun, desk.most) == (["0", "1", "2", "3", "4"], 1)


def test_a_file_of_tools_may_be_serial(tmp_path: Path) -> None:
    file = tmp_path / "shell.py"
    body = 'from cadre.tool import tool\n@tool\ndef cd(path: str) -> str:\n    """Goes."""\n    return path\n'
    file.write_text(f"SERIAL = True\n{body}")
    assert [one.card.serial for one in load_tools(str(file))] == [True]
    assert [one.card.serial for one in load_tools(f"{file}:cd")] == [True]
    other = tmp_path / "plain.py"
    other.write_text(body)
    assert [one.card.serial for one in load_tools(str(other))] == [False]


# --- notes


@tool
async def buy(item: str) -> dict[str, int]:
    """Buys."""
    return {"receipt": "R-1", "total": "3", "long": "x" * 900}  # type: ignore[dict-item]


async def test_a_wrong_hint_is_a_note_for_the_model() -> None:
    agent = Agent(name="a", description="d", tools=["buy"])
    async with Team([agent], [buy], [[call("buy", item="tea")], answer("x")]) as team:
        await team.run("a", "T")
        read = team.requests[-1].request.messages[-1]["content"]
        assert "R-1" in read
        assert "x" * 900 in read
        assert "return hint" in read
        assert "Error" not in read


async def test_in_code_the_call_returns_the_value() -> None:
    agent = Agent(name="a", description="d", kind="code", tools=["buy"])
    code = "<code>\ngot = buy('tea')\nfinal_answer([got['receipt'], len(got['long'])])\n</code>"
    async with Team([agent], [buy], [code]) as team:
        assert await team.run("a", "T") == ["R-1", 900]
