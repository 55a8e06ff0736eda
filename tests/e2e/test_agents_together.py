"""Several agents in one process: offered one by one, named one by one, killed together, and no run is lost."""

import json
from pathlib import Path

import httpx2

from harness.exposition import series_of
from harness.otlp_receiver import OtlpReceiver
from harness.stack import Stack

TEAM = Path(__file__).parent / "clients"


def test_a_manager_and_its_member_in_one_process(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        stack.model(TEAM / "script.yaml")
        together = stack.add("together", "cadre_agent", TEAM / "lead.yaml", TEAM / "writer.yaml", start=False)
        gateway = stack.open_gateway(2)
        assert gateway.answer("writer", "write") == "a story"
        run = gateway.submit("lead", "have a story written")
        gateway.wait_for(run, "delegate.started")
        together.kill()
        together.start()
        stack.release_model()
        assert gateway.succeeded(run) == "the story is written"
        assert [child["agent"] for child in gateway.finished(run)["children"]] == ["writer"]
        assert together.terminate() == 0


def test_each_agent_has_its_own_name_in_spans_metrics_and_logs(tmp_path: Path) -> None:
    """As one in its own process has; what is about none of them has the name of the process."""
    with OtlpReceiver() as receiver, Stack(tmp_path) as stack:
        stack.environment |= {
            "CADRE_LOG_FORMAT": "json",
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
            "OTEL_METRIC_EXPORT_INTERVAL": "100",
        }
        stack.model(TEAM / "script.yaml")
        together = stack.add("together", "cadre_agent", TEAM / "lead.yaml", TEAM / "writer.yaml", start=False)
        stack.add("tracer", "cadre_tracer", start=False)
        gateway = stack.open_gateway(2)
        run = gateway.submit("lead", "have a story written")
        stack.release_model()
        gateway.succeeded(run)

        def services_of(agent: str) -> set[str]:
            """Those that have reported figures of the agent, next to the gateway with those of the deployment."""
            found = {point.service for point in receiver.points if agent in point.attributes.values()}
            return found - {"gateway"}

        receiver.until(
            lambda: all(
                any(point.service == agent and point.name == "cadre.steps" and point.value for point in receiver.points)
                for agent in ("lead", "writer")
            ),
            "the steps of both agents",
        )
        assert (services_of("lead"), services_of("writer")) == ({"lead"}, {"writer"})
        clocks = {one.service for one in receiver.points if one.name == "cadre.clock.skew"}
        assert clocks == {"agents", "gateway", "tracer"}
        receiver.until(
            lambda: {"lead", "writer"} <= {span.service for span in receiver.spans},
            "the spans of both agents",
        )
        text = httpx2.get(f"{together.url}/metrics").text
        (target,) = [dict(labels) for name, labels in series_of(text) if name == "target_info"]
        assert target["service_name"] == "agents"
        assert together.terminate() == 0
        lines = [json.loads(line) for line in together.log.read_text().splitlines() if line.startswith("{")]
        named = {line["service"]: line["message"] for line in lines if line["logger"] == "cadre.run"}
        assert named.keys() == {"lead", "writer"}
        assert all(f" of {agent} " in message for agent, message in named.items())
        outside = {line["service"] for line in lines if line["logger"] == "cadre.service"}
        assert outside == {"agents"}


def test_what_an_agent_logs_outside_of_runs_has_its_name_too(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        stack.environment["CADRE_LOG_FORMAT"] = "json"
        together = stack.add("together", "cadre_agent", TEAM / "lead.yaml", TEAM / "writer.yaml")
        lines = [json.loads(line) for line in together.log.read_text().splitlines() if line.startswith("{")]
        told = {line["service"]: line["message"] for line in lines if "CADRE_MODEL_URL" in line["message"]}
        assert {agent: message.partition(":")[0] for agent, message in told.items()} == {
            "lead": "lead",
            "writer": "writer",
        }


def test_an_agent_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        twice = stack.add("twice", "cadre_agent", TEAM / "lead.yaml", TEAM / "lead.yaml", start=False)
        twice.start(wait=False)
        assert twice.process is not None
        assert twice.process.wait() == 2
        assert "agent lead" in twice.log.read_text().splitlines()[-1]
