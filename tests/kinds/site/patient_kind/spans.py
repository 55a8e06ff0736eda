"""A span without a length for each note of a patient agent."""

from __future__ import annotations

from cadre.journal.parts import JournalEvent
from cadre.spec.agent import AgentSpec
from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.content import Content
from cadre.telemetry.tracing.ids import span_id
from cadre.telemetry.tracing.open_spans import OpenSpan, OpenSpans
from patient_kind.records import Noted


class PatientSpans:
    """`kind_spans.KindSpans` for patient agents."""

    def __init__(self, spec: AgentSpec, spans: OpenSpans, content: Content) -> None:
        self._spans = spans

    def parent(self, parent: str) -> str:
        return parent

    def take(self, event: JournalEvent, agent: str, parent: str, now: int) -> None:
        if isinstance(event, Noted):
            note = OpenSpan(span_id(parent, "note", event.step), parent, "note", now, agent)
            note.attributes = {names.AGENT: agent, names.KIND: "CHAIN"}
            self._spans.add(note, now, None)
