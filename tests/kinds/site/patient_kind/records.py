"""The declaration and records of the kind `patient`."""

from typing import ClassVar

from cadre.journal.parts import Description, JournalEvent, KindState, Mark
from cadre.protocol.messages import KindMessage
from cadre.spec.kinds import Facts, KindDeclaration, Section


class PatientSpec(Section, frozen=True, kw_only=True, tag="patient", omit_defaults=True):
    """The section `patient` of an agent's file."""

    pause: float = 0.0
    """Seconds between two steps."""
    signal: str = ""
    """Name of the signal that ends the pause; without `pause` nothing else does."""
    ask: bool = False
    """A person is asked before the calls of the first step."""


class Noted(JournalEvent, frozen=True, tag="patient.noted"):
    """The number of calls that an answer asks for."""

    step: int
    calls: int

    def describe(self) -> Description:
        return Description("noting", [f"notes {self.calls} calls"], marks=[Mark("note", "note", self.step)])


class Nudge(KindMessage, frozen=True, tag="patient_nudge"):
    """Asks a patient agent to hurry, which changes nothing."""

    kind: str = "patient"
    text: str = ""


class Nudged(JournalEvent, frozen=True, tag="patient.nudged"):
    """Somebody has sent a nudge."""

    text: str

    copies: ClassVar = Nudge


class PatientState(KindState, kw_only=True, tag="patient", omit_defaults=True):
    """The state of a patient run."""

    asked: list[tuple[str, str]] = []
    """Calls of the answer in work: names and arguments as JSON."""
    nudges: int = 0
    wishes: list[str] = []
    """The wishes of people, as they have edited it."""
    version: int = 0
    """Of the wishes."""


DECLARATION = KindDeclaration(
    name="patient",
    behavior={1: "patient_kind.kind:PATIENT"},
    records=(Noted, Nudged, PatientState, PatientSpec),
    purposes={"act": "being patient"},
    facts=lambda spec: Facts(spec.kind, prompt_file="tool_calling"),
)
