"""The inputs of a task that the texts of an agent read as variables: goals, constraints and instructions."""

from collections.abc import Iterator

from cadre.kinds.iteration.records import IterationSection, texts_of
from cadre.spec.agent import AgentSpec
from cadre.spec.contract import AgentContract, ContractProblem, TaskInputs, inputs_type, read_problems
from cadre.spec.expression_types import Typed, attributes_read, names_read
from cadre.spec.expressions import templates_in

INPUTS = "inputs"
"""The name by which a text reads all inputs at once."""


def contract_of(spec: AgentSpec, section: IterationSection) -> AgentContract:
    """Return the inputs that the texts read, and what does not hold between them and the agent's `input_schema`."""
    texts = [*_texts(spec, section)]
    needed, known = frozenset[str](), frozenset[str]()
    for _, text in texts:
        always, perhaps = names_read(text)
        of_all, may, _ = attributes_read(text, INPUTS)
        needed |= (always - {INPUTS}) | of_all
        known |= (perhaps - {INPUTS}) | may
    return AgentContract(_problems(spec, texts), TaskInputs(needed, known - needed))


def _texts(spec: AgentSpec, section: IterationSection) -> Iterator[tuple[str, str]]:
    yield "spec.instructions", spec.instructions
    for key, texts in texts_of(spec.kind, section):
        for index, text in enumerate(texts):
            yield f"spec.{key}[{index}]", text


def _problems(spec: AgentSpec, texts: list[tuple[str, str]]) -> Iterator[ContractProblem]:
    every = inputs_type(spec)
    for path, text in texts:
        for template in templates_in(text):
            names: dict[str, Typed] = {INPUTS: every}
            yield from read_problems(spec, path, template, names)
            if every is not None:
                for name in sorted(frozenset[str]().union(*names_read(template)) - {INPUTS}):
                    # A variable is read as what it stands for, an attribute of the inputs.
                    guard = "" if name in names_read(template)[0] else " is defined"
                    yield from read_problems(spec, path, f"{{{{ {INPUTS}[{name!r}]{guard} }}}}", names)
