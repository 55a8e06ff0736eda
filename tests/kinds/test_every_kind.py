"""Tests of what holds for every declared kind of agent, and that nothing else of the library knows a kind by its
name."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from cadre.engine.kind import Kind, find_kind
from cadre.journal.parts import JournalEvent, KindState, KindStep
from cadre.journal.unions import close
from cadre.prompting.prompts import Prompts, kind_for
from cadre.protocol.messages import Message
from cadre.spec.agent import AgentSpec
from cadre.spec.kinds import KindDeclaration, Section, declared_kinds, facts_of, version_of
from cadre.views.rows import purpose_text

T = TypeVar("T", bound=msgspec.Struct)

SHARED = Path(__file__).parents[2] / "shared"
REGISTRY = {"cadre.spec.kinds"}
"""The closed list of the kinds that come with Cadre."""

FREE_TO_NAME = {"cadre.protocol.cards", "cadre"}
"""Modules that name a kind: of an agent whose card says none; for people who look for another library's word."""


@pytest.fixture(params=sorted(declared_kinds()))
def declared(request: pytest.FixtureRequest) -> KindDeclaration:
    return declared_kinds()[request.param]


@pytest.fixture
def kind(declared: KindDeclaration) -> Kind:
    return find_kind(declared.name, version_of(declared))


def test_it_is_found_by_its_name_and_version(declared: KindDeclaration, kind: Kind) -> None:
    assert isinstance(kind, Kind)
    assert list(declared.behavior) == [1]


def records(declared: KindDeclaration, base: type[T]) -> list[type[T]]:
    return [record for record in declared.records if issubclass(record, base)]


def test_its_records_are_its_own(declared: KindDeclaration) -> None:
    assert set(records(declared, JournalEvent)) <= set(close().events)
    for base in (KindState, KindStep, Section):
        assert [part.__struct_config__.tag for part in records(declared, base)] in ([], [declared.name])


def test_an_event_copies_every_field_of_its_record(declared: KindDeclaration) -> None:
    """A decision is made again from the event alone."""
    common = set(Message.__struct_fields__) | {"kind", "kind_version"}
    for event in records(declared, JournalEvent):
        if (message := event.copies) is not None:
            assert message in close().records
            assert set(message.__struct_fields__) - common <= set(event.__struct_fields__)


def test_its_section_has_a_default_for_every_field(declared: KindDeclaration) -> None:
    for section in records(declared, Section):
        assert not [one.name for one in msgspec.structs.fields(section) if one.required]


def test_its_prompts_render(declared: KindDeclaration) -> None:
    spec = AgentSpec(name="a", description="A.", kind=declared.name)
    terms = declared.facts(spec).terms()
    assert Prompts.load(kind_for(spec)).system([], [], "Be kind.", terms).strip()


def test_a_person_is_told_of_each_purpose(declared: KindDeclaration) -> None:
    assert declared.purposes or not facts_of(AgentSpec(name="a", description="A.", kind=declared.name)).asks_model
    for purpose, text in declared.purposes.items():
        assert purpose_text(purpose) == text


def modules() -> Iterator[tuple[str, ast.Module]]:
    for file in sorted(SHARED.rglob("*.py")):
        name = ".".join(file.relative_to(SHARED).with_suffix("").parts).removesuffix(".__init__")
        yield name, ast.parse(file.read_text())


def is_of_a_kind(module: str) -> bool:
    return any(module.startswith(f"cadre.kinds.{name}") for name in declared_kinds())


def test_no_other_module_imports_a_kind() -> None:
    found = [
        f"{name}: {node.module}"
        for name, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and is_of_a_kind(node.module)
        if not is_of_a_kind(name)
    ]
    assert found == []


def test_no_other_module_compares_with_a_kinds_name() -> None:
    """Nor is there a list of the kinds' names anywhere else."""
    names = set(declared_kinds()) - {"code", "plan", "program"}  # words for other things as well
    found = []
    for name, tree in modules():
        if is_of_a_kind(name) or name in REGISTRY | FREE_TO_NAME:
            continue
        for node in ast.walk(tree):
            compared = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
            constants = {one.value for one in compared if isinstance(one, ast.Constant)}
            kinds = any(isinstance(one, ast.Attribute) and one.attr == "kind" for one in compared)
            if kinds and constants & set(declared_kinds()):
                found.append(f"{name}: compares")
            if isinstance(node, ast.Constant) and node.value in names:
                found.append(f"{name}: {node.value}")
    assert found == []


def test_it_is_drawn(declared: KindDeclaration, kind: Kind) -> None:
    """`cadre graph` has a flowchart of an agent of every kind."""
    spec = AgentSpec(name="a", description="Works.", kind=declared.name, tools=["look"], team=["helper"])
    head, *lines = kind.graph(spec)
    assert head.startswith("flowchart ")
    assert lines
    assert all(line.startswith("    ") and line.count('"') % 2 == 0 for line in lines)


MOST_MEMBERS = 30

PAGE = (SHARED.parent / "docs" / "architecture.md").read_text().partition("## Add a kind")[2]


def members(owner: type) -> set[str]:
    names = {*vars(owner), *vars(owner).get("__annotations__", {})}
    return {name for name in names if not name.startswith("_")}


def test_the_page_lists_the_whole_seam() -> None:
    """A kind has no more members than a reader can keep in mind."""
    seam = {
        f"{owner.__name__}.{name}"
        for owner, found in (
            (KindDeclaration, set(KindDeclaration._fields)),
            (Kind, members(Kind)),
            (JournalEvent, members(JournalEvent)),
        )
        for name in found
    }
    listed = re.findall(r"^\| `([A-Za-z]+\.[a-z_]+)` \|", PAGE, re.MULTILINE)
    assert sorted(listed) == sorted(seam)
    assert len(seam) <= MOST_MEMBERS
