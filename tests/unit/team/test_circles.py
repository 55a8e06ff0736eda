"""An agent whose calls go in circles, in a whole team."""

from pathlib import Path

from cadre import Agent, Limits, tool
from cadre.testing import Team, answer, call


async def test_an_agent_that_is_told_how_to_wait_waits_and_asks_again(tmp_path: Path) -> None:
    came = iter(["open"] * 3 + ["paid"])

    @tool
    def status(bill: int) -> str:
        """Tells the status of a bill.

        Args:
            bill: Its number.
        """
        return next(came)

    page = (Path(__file__).parents[3] / "docs" / "limits.md").read_text()
    example = page.partition("```yaml\napiVersion")[2].partition("```")[0]
    (tmp_path / "wait.yaml").write_text(f"apiVersion{example}")
    clerk = Agent(
        name="clerk",
        description="Sees to bills.",
        tools=["status"],
        team=["wait_for_payment"],
        limits=Limits(repeats=3),
    )
    ask = call("status", bill=7)
    script = [ask, ask, ask, ask, call("wait_for_payment", task="Bill 7."), ask, answer("paid")]
    async with Team([clerk, tmp_path / "wait.yaml"], [status], {"clerk": script}) as team:
        assert await team.run("clerk", "Has bill 7 been paid?") == "paid"
        refused, waited = (str(team.requests[at].request.messages[-1]) for at in (4, 5))
    assert "call 'wait_for_payment' first" in refused
    assert "Nothing has come yet." in waited
