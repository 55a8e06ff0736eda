"""The shipped team's demo, traced into a real MLflow, is found there as one tree by a real browser."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Page, expect

from harness.nats_server import free_port
from harness.patience import patience
from observe.demo import CACHED, REASONED, ROOT, Demo, answering, run_demo

MLFLOW = ROOT / "build" / "mlflow-venv" / "bin" / "mlflow"

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address."""
    folder, port = tmp_path_factory.mktemp("mlflow"), free_port()
    url = f"http://127.0.0.1:{port}"
    store = f"sqlite:///{folder}/mlflow.db"
    argv: list[str | Path] = [MLFLOW, "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    argv += ["--backend-store-uri", store, "--default-artifact-root", str(folder / "artifacts")]
    with answering(argv, f"{url}/health", folder, MLFLOW_DISABLE_TELEMETRY="true", DO_NOT_TRACK="true"):
        yield url


@pytest.fixture(scope="module")
def demo(mlflow: str, tmp_path_factory: pytest.TempPathFactory) -> Demo:
    def has_root(trace: str) -> bool:
        return "invoke_workflow manager" in {span["name"] for span in trace_of(Demo(mlflow, trace))["spans"]}

    folder = tmp_path_factory.mktemp("up")
    return Demo(mlflow, run_demo(folder, mlflow, "x-mlflow-experiment-id=0", has_root))


def trace_of(demo: Demo) -> dict[str, Any]:
    """The run's trace, as MLflow has it."""
    answer = httpx2.get(
        f"{demo.backend}/api/3.0/mlflow/traces/get",
        params={"trace_id": f"tr-{demo.trace}"},
        timeout=patience(),
    )
    found: dict[str, Any] = answer.json()["trace"] if answer.status_code == 200 else {"spans": []}
    return found


def test_it_is_one_tree_with_tokens(demo: Demo) -> None:
    trace = trace_of(demo)
    ids = {span["span_id"] for span in trace["spans"]}
    roots = [span["name"] for span in trace["spans"] if span.get("parent_span_id") not in ids]
    assert roots == ["invoke_workflow manager"]
    assert trace["trace_info"]["state"] == "OK"
    used = trace["trace_info"]["trace_metadata"]["mlflow.trace.tokenUsage"]
    assert f'"cache_read_input_tokens": {CACHED}' in used


def test_mlflow_shows_the_tree_and_what_a_model_answered(demo: Demo, page: Page) -> None:
    page.goto(f"{demo.backend}/#/experiments/0/traces?selectedEvaluationId=tr-{demo.trace}")
    for name in ("invoke_workflow manager", "invoke_agent researcher", "plan manager"):
        expect(page.get_by_text(name, exact=True).first).to_be_visible()
    page.get_by_text("chat scripted", exact=True).nth(1).click()
    expect(page.get_by_text("so I ask for all at once")).to_be_visible()
    expect(page.get_by_text("Tool calls", exact=True)).to_be_visible()
    expect(page.get_by_text("From the tables of the Apollo flights").first).to_be_visible()
    page.locator("[role=tab]", has_text="Attributes").click()
    for text in ("gen_ai.tool.definitions", "Calculates with tables", "gen_ai.usage.cache_read.input_tokens"):
        expect(page.get_by_text(text).first).to_be_attached()
    reasoned = page.get_by_text("gen_ai.usage.reasoning.output_tokens").locator("xpath=../..")
    expect(reasoned).to_contain_text(str(REASONED))
