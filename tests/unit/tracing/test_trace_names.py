"""The names that spans bear, as dashboards and queries of others know them: a change of one is a change of contract."""

import json
from functools import cache
from pathlib import Path

from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.page import trace_of
from cadre.telemetry.tracing.spans import SpanRecord
from journals import kept
from unit.tracing.test_span_moments import journal_of, remembering
from unit.tracing.test_span_projection import simple
from unit.tracing.test_trace_content import CANARY, calling, coding

SNAPSHOT = Path(__file__).parent / "names.json"


@cache
def emitted() -> dict[str, dict[str, list[str]]]:
    """For each kind of span, its attributes and its events, over all the journals that there are here."""
    journals = [
        [one.entry for one in journal]
        for version in kept.VERSIONS
        for name in kept.names(version)
        for journal in kept.journals(version, name)
    ]
    journals += [sim.journal() for sim in (calling(), coding(), simple())]
    journals.append(journal_of(*remembering()))
    found: dict[str, dict[str, set[str]]] = {}
    for journal in journals:
        for content in (False, True):
            for span in trace_of(journal, now=0.0, content=content):
                known = found.setdefault(_kind(span), {"attributes": set(), "with content": set(), "events": set()})
                known["with content" if content else "attributes"] |= set(span.attributes)
                known["events"] |= {moment.name for moment in span.moments}
    return {
        kind: {
            "attributes": sorted(known["attributes"]),
            "with content": sorted(known["with content"] - known["attributes"]),
            "events": sorted(known["events"]),
        }
        for kind, known in sorted(found.items())
    }


def _kind(span: SpanRecord) -> str:
    operation = span.name.split()[0]
    destination = span.attributes.get(names.DESTINATION_TEMPLATE, "")
    code = " code" if "code" in str(destination) else ""
    return f"{operation}{code} {span.kind}"


def test_the_names_are_those_of_the_snapshot() -> None:
    """After an intended change: `python -m unit.tracing.test_trace_names` in tests/ writes the snapshot again, and
    docs/observability.md and the changelog say what has changed."""
    assert emitted() == json.loads(SNAPSHOT.read_text())


def test_every_attribute_has_its_name_from_one_module() -> None:
    known = {value for key, value in vars(names).items() if key.isupper() and isinstance(value, str)}
    for kind in emitted().values():
        for attributes in kind.values():
            assert set(attributes) <= known
    assert CANARY not in SNAPSHOT.read_text()


if __name__ == "__main__":
    SNAPSHOT.write_text(json.dumps(emitted(), indent=2) + "\n")
