"""Agents that write code: each step of the plan is a block."""

import random

import msgspec

from cadre.journal.events import RequestedCall
from cadre.kinds.code.section import CodeSpec, code_of
from cadre.ports import ModelReply
from cadre.spec.agent import AgentSpec
from cadre.spec.kinds import sections
from simulation.kinds.simulated import Question, SimulatedKind, said


class Code(SimulatedKind):
    """The kind `code`."""

    calls_per_step = (1, 2, 3, 5)

    def varied(self, calls: list[RequestedCall], chance: random.Random) -> list[RequestedCall]:
        return calls

    def drawn(self, spec: AgentSpec, chance: random.Random, *, poison: bool) -> AgentSpec:
        return msgspec.structs.replace(spec, **sections(CodeSpec(structured=chance.random() < 0.2)))

    def act(self, asked: Question, step: int) -> ModelReply:
        """The block as a model writes it; the closing tag, at which it was to stop, is not there."""
        blocks, section = asked.plan.blocks, code_of(asked.spec)
        block = blocks[min(step, len(blocks) - 1)]
        if section.structured:
            return said(msgspec.json.encode({"thought": "Next.", "code": block}).decode())
        return said(f"Next.\n{section.tags[0]}\n{block}\n")
