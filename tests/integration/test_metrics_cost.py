"""The cost of models begins at 0 where their price is known, so that the first call is an increase."""

from pathlib import Path

import httpx2

from harness.exposition import Series, series_of
from harness.patience import eventually, patience
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parents[1] / "e2e" / "traced"

PRICES = "scripted: {input: 1000, output: 1000}\nspare-*: {input: 1, output: 1}\n"

ASKER = """
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: asker}
spec:
  description: Asks two models, of which one has a price.
  instructions: You are the helper.
  model:
    fallbacks: [{name: spare-1}, {name: unpriced}, {name: own, price: {input: 1, output: 1}}]
"""


def costs(gateway: Gateway) -> dict[tuple[str, str], float]:
    answer = httpx2.get(f"{gateway.service.url}/metrics", timeout=patience())
    found: Series = series_of(answer.text)
    labels = ("gen_ai_agent_name", "gen_ai_request_model")
    return {
        (dict(has)[labels[0]], dict(has)[labels[1]]): value
        for (name, has), value in found.items()
        if name == "cadre_cost_total"
    }


def test_the_cost_of_each_priced_model_begins_with_nothing(tmp_path: Path) -> None:
    prices, asker = tmp_path / "prices.yaml", tmp_path / "asker.yaml"
    prices.write_text(PRICES)
    asker.write_text(ASKER)
    with Stack(tmp_path) as stack:
        stack.environment["CADRE_PRICES"] = str(prices)
        stack.model(TEAM / "script.yaml")
        agent = stack.agent(asker, start=False)
        gateway = stack.open_gateway()
        nothing = {("asker", name): 0.0 for name in ("scripted", "spare-1", "own")}
        eventually(lambda: costs(gateway) == nothing, what="all that is priced begins with 0", state=stack.logs)
        gateway.finished(gateway.submit("asker", "say hello"))
        eventually(lambda: costs(gateway)["asker", "scripted"] > 0, what="the call is counted", state=stack.logs)
        assert costs(gateway).keys() == nothing.keys()
        assert agent.terminate() == 0
        eventually(
            lambda: gateway.request("GET", "/v1/agents").json()["agents"][0]["away_since"] is not None,
            what="the agent is away",
        )
        assert costs(gateway).keys() == nothing.keys(), "they stay"
