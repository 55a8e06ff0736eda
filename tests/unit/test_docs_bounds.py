"""The files that the pages on agents, approvals and limits show can be used as they stand."""

import re
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from msgspec import UNSET, UnsetType

from cadre.api.runs import RunDetail, RunSummary
from cadre.journal.unions import close
from cadre.spec.agent import AgentSpec
from cadre.spec.agent_file import agent_body, read_agent
from cadre.spec.prices import Prices
from cadre_gateway.requests.body import (
    BudgetBody,
    CancelBody,
    EditBody,
    MessageBody,
    RulingBody,
    Submission,
)
from cadre_gateway.starting.fork import ForkBody, ResumeBody
from generate.shapes import shape

DOCS = Path(__file__).parents[2] / "docs"

HEAD = "apiVersion: cadre.dev/v1\nkind: Agent\nmetadata: {name: a}\n"


def blocks(page: str) -> list[str]:
    found: list[str] = re.findall(r"^```yaml\n(.*?)^```", (DOCS / page).read_text(), re.M | re.S)
    assert found, page
    return found


def agent_of(block: str, folder: Path) -> AgentSpec:
    """The agent of a whole file, or of a `spec` that lacks what every agent has."""
    file = folder / "agent.yaml"
    if not block.startswith("apiVersion"):
        lacking = "".join(
            f"  {line}\n"
            for key, line in (
                ("description", "description: Works."),
                ("tools", "tools: [search]"),
                ("team", "team: [researcher]"),
            )
            if f"\n  {key}:" not in block
        )
        block = f"{HEAD}{block}{lacking}"
    file.write_text(block.replace("https://…/v1", "https://127.0.0.1/v1"))
    return read_agent(file)


@pytest.mark.parametrize("page", ["agents.md", "approvals.md", "limits.md"])
def test_the_agents_of_a_page_can_be_read(page: str, tmp_path: Path) -> None:
    agents = [
        agent_of(block, tmp_path)
        for block in blocks(page)
        if "spec:\n" in block and not re.search(r"^kind: (?!Agent$)", block, re.M)
    ]
    assert agents
    bare = AgentSpec(name="a", description="Works.", tools=["search"], team=["researcher"])
    assert all(agent != bare for agent in agents)


def test_the_page_on_agents_shows_every_section() -> None:
    [whole] = [block for block in blocks("agents.md") if "limits:" in block and "code:" in block]
    shown = set(re.findall(r"^ +(?:# )?(\w+):", whole, re.M))
    assert {field.name for field in msgspec.structs.fields(agent_body())} <= shown


def test_the_page_on_http_names_every_event() -> None:
    page = (DOCS / "http-api.md").read_text()
    tags = [one.__struct_config__.tag for one in close().events]
    assert tags
    assert [tag for tag in tags if f"`{tag}`" not in page] == []


@pytest.mark.parametrize(
    "kind", [Submission, BudgetBody, MessageBody, EditBody, CancelBody, ForkBody, ResumeBody, RulingBody]
)
def test_the_page_on_http_names_every_key_of_a_body(kind: type[msgspec.Struct]) -> None:
    page = (DOCS / "http-api.md").read_text()
    names = set(re.findall(r"[`\"{,] ?([a-z_]+)(?=[`\"?,:}])", page))
    assert set(kind.__struct_fields__) - names == set()


def test_the_page_on_http_shows_what_structs_are_made_of() -> None:
    """Fields of structs in them, of unions and of what may be missing."""

    class Wheel(msgspec.Struct, omit_defaults=True):
        spokes: int
        rim: Literal["steel", "wood"] = "steel"

    class Cart(msgspec.Struct):
        name: str
        wheels: list[Wheel]
        spare: Wheel | None = None
        doors: dict[str, Wheel] | UnsetType = UNSET

    wheel = '{spokes, rim?: "steel" | "wood"}'
    assert shape(Cart) == f"{{name, wheels: [{wheel}], spare: {wheel} | null, doors?: {{NAME: {wheel}}}}}"
    assert shape(RunDetail, RunSummary).startswith("{trace, output, deadline_at, budget: {tokens?, cost?, ")


def test_the_table_of_prices_can_be_read(tmp_path: Path) -> None:
    (table,) = [block for block in blocks("limits.md") if "prices.yaml" in block]
    file = tmp_path / "prices.yaml"
    file.write_text(table)
    prices = Prices.read(str(file))
    mini, large, local = (prices.of(name) for name in ("gpt-x-mini", "gpt-x-2026-01-01", "local/any"))
    assert mini is not None
    assert large is not None
    assert local is not None
    assert (mini.input, large.output, local.output) == (0.4, 8.0, 0)
    assert prices.of("another") is None


def test_the_glossary_keeps_to_twenty_words() -> None:
    text = (DOCS / "architecture.md").read_text().partition("## Glossary")[2].partition("\n## ")[0]
    assert sum(line.startswith("| ") for line in text.splitlines()) - 1 == 20
