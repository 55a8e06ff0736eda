"""`--set KEY=VALUE`: one value, as Helm's users and those of YAML write it."""

from typing import Any

import pytest

from cadre.deploy.k8s.values import read_values, setting
from cadre.errors import SpecError
from cadre.spec.model import Price


@pytest.mark.parametrize(
    ("assignment", "layer"),
    [
        (
            'prices={"scripted": {"input": 1, "output": 4.5}}',
            {"prices": {"scripted": {"input": 1, "output": 4.5}}},
        ),
        ("prices={local/*: {input: 0, output: 0}}", {"prices": {"local/*": {"input": 0, "output": 0}}}),
        ("prices.scripted.input=0.4", {"prices": {"scripted": {"input": 0.4}}}),
        (r"prices.gpt-4\.1={input: 2, output: 8}", {"prices": {"gpt-4.1": {"input": 2, "output": 8}}}),
        (
            r"nats.pods.app\.kubernetes\.io/name=nats-0",
            {"nats": {"pods": {"app.kubernetes.io/name": "nats-0"}}},
        ),
        ("nats.pods={}", {"nats": {"pods": {}}}),
        ("nats.credentials={workload}", {"nats": {"credentials": "{workload}"}}),
        ("instance=7", {"instance": "7"}),
        ("memory=true", {"memory": True}),
        ("memory.engine=embedded", {"memory": {"engine": "embedded"}}),
        ("memory.storage.size=3Gi", {"memory": {"storage": {"size": "3Gi"}}}),
        ("gateway.secret=mine", {"gateway": {"secret": "mine"}}),
        ("pools=[default, heavy]", {"pools": ["default", "heavy"]}),
        ("pools={default,heavy}", {"pools": ["default", "heavy"]}),
        ("workloads.gateway.env.LIMIT=5", {"workloads": {"gateway": {"env": {"LIMIT": "5"}}}}),
        ("workloads.gateway.env={A: b=c}", {"workloads": {"gateway": {"env": {"A": "b=c"}}}}),
        ("workloads.gateway.scale=null", {"workloads": {"gateway": {"scale": None}}}),
        (
            'workloads.gateway.pod.metadata.annotations={"a.b/c": "true"}',
            {"workloads": {"gateway": {"pod": {"metadata": {"annotations": {"a.b/c": "true"}}}}}},
        ),
        ('workloads.gateway.pod.x="5"', {"workloads": {"gateway": {"pod": {"x": "5"}}}}),
    ],
)
def test_one_value_is_written_as_in_helm_or_as_yaml(assignment: str, layer: dict[str, Any]) -> None:
    assert setting(assignment) == layer


def test_a_price_may_be_set_key_by_key() -> None:
    values = read_values(setting("prices.scripted.input=0.4"), setting("prices.scripted.output=2"))
    assert values.prices == {"scripted": Price(input=0.4, output=2)}


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("nats..url=x", "write KEY=VALUE"),
        ("prices={scripted: {input: 1", r"prices.*YAML.*--set 'KEY=\{…\}'"),
        ("prices.scripted.input=cheap", "needs a number$"),
        (
            "prices.gpt-4.1.input=2",
            r"prices.gpt-4: no key `1`; there are input, output, cached; .* is written \\\.",
        ),
        ("nats.pods.app.kubernetes.io/name=x", r"nats.pods.app.* is written \\\."),
        ("nats.pods=nats", r"needs a mapping: --set 'KEY=\{…\}'"),
        ("pools=heavy", r"needs a list: --set 'KEY=\[…\]'"),
        ("pools[0]=heavy", r"pools\[0\].*: --set 'pools=\[…\]'"),
        ("nats.shards=8,nats.replicas=3", r"nats\.shards=.*: needs .*--set"),
    ],
)
def test_an_error_says_how_it_is_written(assignment: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        read_values(setting(assignment))
