"""Tests of who must agree to a call: what tools and agents' files may say, and what is wrong with the rest."""

from pathlib import Path

import msgspec
import pytest

from cadre import tool
from cadre.errors import SettingError, SpecError, ToolDefinitionError
from cadre.protocol.usage import Budget, Usage
from cadre.spec.agent_file import read_agent
from cadre.spec.policy import check_policy, names_in, reason_to_ask
from cadre.spec.prices import Prices, priced

FILE = """
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: clerk}
spec:
  description: Refunds orders.
  tools: [refund]
  team: [helper]
"""


def agent_file(folder: Path, more: str) -> Path:
    file = folder / "clerk.yaml"
    file.write_text(FILE + f"  {more}\n")
    return file


# --- expressions


@pytest.mark.parametrize(
    ("policy", "arguments", "asks"),
    [
        ("never", {}, False),
        ("always", {}, True),
        ("when: amount > 100", {"amount": 100}, False),
        ("when: amount > 100", {"amount": 100.01}, True),
        ("when: currency != 'EUR' and amount > 1", {"amount": 2, "currency": "USD"}, True),
        ("when: 'rm' in command.split()", {"command": "rm -r x"}, True),
        ("when: note is defined", {}, False),
        ("when: tags | length > 2", {"tags": [1, 2, 3]}, True),
    ],
)
def test_a_policy_looks_at_the_arguments(policy: str, arguments: dict[str, object], asks: bool) -> None:
    check_policy(policy)
    assert (reason_to_ask(policy, arguments) is not None) is asks


@pytest.mark.parametrize(
    ("policy", "arguments"),
    [
        ("when: amount > 100", {}),
        ("when: amount > 100", {"amount": "many"}),
        ("when: amount.__class__.__mro__", {"amount": 1}),
        ("when: range(1000000000) | list", {}),
        ("later: x", {}),
    ],
)
def test_a_policy_that_cannot_be_told_asks(policy: str, arguments: dict[str, object]) -> None:
    assert reason_to_ask(policy, arguments)


def test_a_policy_changes_nothing() -> None:
    tags = ["a"]
    assert reason_to_ask("when: tags.append('b') is none", {"tags": tags})
    assert tags == ["a"]


@pytest.mark.parametrize("policy", ["", "Always", "when:", "when: ", "when: amount >", "when: {{ x }}"])
def test_what_is_no_policy(policy: str) -> None:
    with pytest.raises(ValueError):
        check_policy(policy)


def test_the_names_of_an_expression() -> None:
    assert names_in("when: amount > 100 and range(limit) | length") == {"amount", "limit"}
    assert names_in("always") == set()


# --- tools


def test_a_tool_says_when_it_needs_a_word() -> None:
    @tool(approval="when: amount > 100")
    def refund(amount: float = 500) -> str:
        """Pay money back."""
        return f"{amount}"

    assert refund.card.approval == "when: amount > 100"

    @tool
    def plain() -> None:
        """Do nothing."""

    assert plain.card.approval == ""


@pytest.mark.parametrize(
    ("approval", "problem"),
    [
        ("sometimes", "'sometimes'.*'when: "),
        ("when: amount >", "unexpected"),
        ("when: amont > 100", "amont, .*: its parameters are amount"),
        ("", "write never, always"),
        (True, "expected `str`, got `bool`"),
    ],
)
def test_a_tool_with_a_policy_of_no_use(approval: str, problem: str) -> None:
    with pytest.raises(ToolDefinitionError, match=problem) as caught:

        @tool(approval=approval)
        def refund(amount: float) -> str:
            """Pay money back."""
            return f"{amount}"

    assert "test_policies.py:" in str(caught.value)


# --- agents' files


def test_an_agent_file_bounds_its_runs(tmp_path: Path) -> None:
    agent = read_agent(
        agent_file(
            tmp_path,
            "approvals: {refund: 'when: amount > 100', '*': always}\n"
            "  permission: restricted\n"
            "  approval_seconds: 3600\n"
            "  timeouts: {refund: 30, '*': 600}\n"
            "  limits: {parallel: 4, repeats: 0, seconds: 86400, budget: {tokens: 5000, cost: 0.5}}\n"
            "  model: {price: {input: 0.4, output: 1.6}}",
        )
    )
    assert agent.approvals == {"refund": "when: amount > 100", "*": "always"}
    assert (agent.permission, agent.approval_seconds) == ("restricted", 3600)
    assert agent.timeouts == {"refund": 30, "*": 600}
    assert (agent.limits.parallel, agent.limits.repeats, agent.limits.seconds) == (4, 0, 86400)
    assert agent.limits.budget == Budget(tokens=5000, cost=0.5)
    assert agent.model.price is not None
    assert agent.model.price.output == 1.6


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (
            "approvals: {refund: yes}",
            r"approvals: refund: True: .*'when: .*YAML",
        ),
        ("approvals: {refund: }", r"approvals: refund: None: write never, always"),
        ("approvals: {off: always}", r"approvals names off, which is neither"),
        ("approvals: {refund: sometimes}", r"approvals.refund: 'sometimes': write never"),
        ("approvals: {refund: 'when: amount >'}", r"approvals.refund: 'when: amount >': unexpected"),
        (
            "approvals: {refnd: always}",
            "approvals names refnd, ",
        ),
        ("approvals: [refund]", r"spec.approvals: Expected `object`"),
        ("permission: strict", r"spec.permission: .*write open or restricted"),
        ("approval_seconds: 0", "approval_seconds"),
        ("timeouts: {refund: 0}", r"timeouts.refund"),
        ("timeouts: {refund: .inf}", r"timeouts.refund"),
        ("limits: {parallel: 0}", r"limits.parallel"),
        ("limits: {seconds: .nan}", r"limits.seconds: "),
        (
            "limits: {budget: {token: 5}}",
            r"unknown key 'token' in spec.limits.budget; known keys: tokens, cost",
        ),
        ("limits: {budget: {cost: -1}}", r"limits.budget.cost"),
        ("model: {price: {input: 1}}", r"'output' is missing in spec.model.price; known keys: input, output"),
        ("model: {price: {input: 1, output: -1}}", r"model.price.output"),
    ],
)
def test_a_wrong_bound_in_an_agent_file_is_named(tmp_path: Path, more: str, problem: str) -> None:
    with pytest.raises(SpecError, match=problem) as caught:
        read_agent(agent_file(tmp_path, more))
    assert str(caught.value).startswith(f"{tmp_path / 'clerk.yaml'}: ")


# --- prices


def test_the_first_price_that_fits_counts(tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text("big-1: {input: 2, output: 8}\n'big-*': {input: 4, output: 16}\n'*': {input: 0, output: 0}\n")
    prices = Prices.read(str(file))
    usage = Usage(input_tokens=1_000_000, output_tokens=500_000, model_calls=1)
    for model, cost in (("big-1", 6.0), ("big-2024", 12.0), ("small", 0.0)):
        price = prices.of(model)
        assert price is not None
        assert priced(usage, price).cost == cost
    assert Prices.read("").of("big-1") is None


def test_tokens_that_the_endpoint_had_cached_have_a_price_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text(
        "told: {input: 4, output: 8, cached: 1}\nfree: {input: 4, output: 8, cached: 0}\nold: {input: 4, output: 8}\n"
    )
    prices = Prices.read(str(file))
    usage = Usage(input_tokens=1_000_000, output_tokens=500_000, model_calls=1)
    for model, cached, cost in (
        ("told", 0, 8.0),
        ("told", 500_000, 6.5),
        ("told", 9_000_000, 5.0),
        ("free", 500_000, 6.0),
        ("old", 500_000, 8.0),
    ):
        price = prices.of(model)
        assert price is not None
        assert priced(usage, price, cached).cost == cost, (model, cached)
    assert msgspec.json.encode(prices.of("old")) == b'{"input":4.0,"output":8.0}', "a spec keeps its digest"
    file.write_text("a: {input: 1, output: 1, cached: -1}\n")
    with pytest.raises(SettingError, match="a: "):
        Prices.read(str(file))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("big: 2", "Expected `object`"),
        ("big: {input: 2}", "missing required field `output`"),
        ("big: {input: -2, output: 1}", "big: "),
        ("big: {input: .nan, output: 1}", "big: "),
        ("[big]", "Expected `object`"),
        ("big: {input", "not YAML"),
    ],
)
def test_a_wrong_price_table_is_named(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text(text)
    with pytest.raises(SettingError, match=problem) as caught:
        Prices.read(str(file))
    assert str(file) in str(caught.value)
    with pytest.raises(SettingError, match="cannot be read"):
        Prices.read(str(tmp_path / "gone.yaml"))
