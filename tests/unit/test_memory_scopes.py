"""Tests of who reaches which memories, decided without any I/O."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cadre.errors import MemoryRefused, UnreadableMessage
from cadre.protocol.memory import Selection
from cadre.protocol.messages import MemoryScope, Origin, ToolCall
from cadre.protocol.topology import Topology
from cadre_memory.index.scopes import (
    SCOPES,
    Caller,
    caller_of,
    everything,
    forgetting,
    of_tree,
    reading,
    selected,
    writing,
)
from cadre_memory.index.vector_index import owner

OWNER = {"run": "tree", "session": "session", "agent": "agent", "team": "team", "user": "user"}

names = st.sampled_from(["", "a", "b"]).map(lambda name: name or None)
origins = st.builds(
    Origin,
    user=names,
    session=names,
    root=names,
    team=names,
    reads=st.lists(st.sampled_from(SCOPES), unique=True),
    writes=st.sampled_from(SCOPES),
)
callers = st.builds(
    Caller,
    agent=st.sampled_from(["x", "y"]),
    tree=st.sampled_from(["t", "u"]),
    run=st.just("t"),
    call=st.just("t_1_0"),
    step=st.just(1),
    origin=origins,
)


def fields(caller: Caller) -> dict[str, str | None]:
    origin = caller.origin
    return {
        "tree": caller.tree,
        "agent": caller.agent,
        "session": origin.session,
        "team": origin.team,
        "user": origin.user,
    }


def session_owner(caller: Caller) -> str:
    """A session's owner, as the index stores it: of the same name, every person has one with each agent."""
    origin = caller.origin
    return owner("session", origin.session or "", origin.user or "", origin.root or "")


@given(callers)
def test_a_clause_names_a_scope_that_is_read_and_the_callers_own_name_for_it(caller: Caller) -> None:
    within = reading(caller, 5.0)
    assert within.at == 5.0
    for clause in within.any_of:
        scope = clause.equals["scope"]
        assert scope in caller.origin.reads
        own = {"owner": session_owner(caller)} if scope == "session" else {}
        assert clause.equals == {"scope": scope, OWNER[scope]: fields(caller)[OWNER[scope]], **own}
    opened = {clause.equals["scope"] for clause in within.any_of}
    assert opened == {scope for scope in caller.origin.reads if fields(caller)[OWNER[scope]]}


@given(callers, callers)
def test_what_one_writes_another_reads_only_as_its_owner(writer: Caller, reader: Caller) -> None:
    scope = writing(writer)
    stored = {**fields(writer), "scope": scope, "owner": session_owner(writer)}
    seen = any(
        all(stored[field] == value for field, value in clause.equals.items()) for clause in reading(reader, 0.0).any_of
    )
    mine, theirs = fields(writer)[OWNER[scope]], fields(reader)[OWNER[scope]]
    is_same = scope != "session" or all(
        getattr(writer.origin, one) == getattr(reader.origin, one) for one in ("user", "root")
    )
    assert seen == (scope in reader.origin.reads and mine == theirs and is_same)
    assert mine, "nothing is stored without an owner"


@given(callers)
def test_what_may_be_forgotten_is_what_could_be_written(caller: Caller) -> None:
    clauses = [clause.equals for clause in forgetting(caller).any_of]
    assert {clause["scope"] for clause in clauses} == {"run", writing(caller)}
    assert all(clause[OWNER[clause["scope"]]] == fields(caller)[OWNER[clause["scope"]]] for clause in clauses)


@pytest.mark.parametrize("scope", ["session", "team", "user"])
def test_a_scope_without_an_owner_is_written_to_the_run(scope: MemoryScope) -> None:
    caller = Caller(agent="a", tree="t", run="t", call="t_1_0", step=1, origin=Origin(writes=scope))
    assert writing(caller) == "run"


def test_nothing_is_open_without_an_origin() -> None:
    caller = Caller(agent="a", tree="t", run="t", call="t_1_0", step=1)
    assert reading(caller, 0.0).any_of == []
    assert writing(caller) == "run"


# --- who calls


def a_call(**other: str) -> ToolCall:
    named = {"id": "t_2_0_3_1", "tree": "t", "run": "t_2_0", "agent": "boss", "tool": "recall", **other}
    return ToolCall(at=0.0, arguments={}, **named)  # type: ignore[arg-type]


ADDRESS = Topology.address("cadre.call.0.recall.boss.t.t_2_0_3_1")


def test_a_caller_is_who_the_subject_says() -> None:
    caller = caller_of(a_call(), ADDRESS)
    assert (caller.agent, caller.tree, caller.run, caller.step) == ("boss", "t", "t_2_0", 3)


def test_what_an_agent_remembers_by_itself_has_its_step() -> None:
    call = a_call(id="t_4_memory", run="t", tool="remember")
    assert caller_of(call, Topology.address("cadre.call.0.remember.boss.t.t_4_memory")).step == 4


@pytest.mark.parametrize(
    "other",
    [
        {"agent": "mallory"},
        {"tree": "u"},
        {"run": "u_2_0"},
        {"run": "t"},
        {"id": "t_2_0_3_2"},
        {"tool": "remember"},
    ],
)
def test_a_call_that_says_anything_else_is_refused(other: dict[str, str]) -> None:
    with pytest.raises(UnreadableMessage):
        caller_of(a_call(**other), ADDRESS)


# --- people


@pytest.mark.parametrize(
    ("selection", "clauses"),
    [
        (Selection(scope="user", user="anna"), [{"scope": "user", "user": "anna"}]),
        (Selection(user="anna"), [{"scope": scope, "user": "anna"} for scope in SCOPES]),
        (Selection(scope="run", run="t"), [{"scope": "run", "tree": "t"}]),
        (Selection(scope="run", run="t_1_0"), [{"scope": "run", "run": "t_1_0"}]),
        (Selection(all=True), [{"scope": scope} for scope in SCOPES]),
        (Selection(all=True, scope="team"), [{"scope": "team"}]),
        (
            Selection(scope="agent", agent="a", team="b"),
            [{"scope": "agent", "agent": "a", "team": "b"}],
        ),
    ],
)
def test_a_selection_opens_what_it_names(selection: Selection, clauses: list[dict[str, str]]) -> None:
    assert [clause.equals for clause in selected(selection).any_of] == clauses


@pytest.mark.parametrize(
    "selection",
    [
        Selection(),
        Selection(scope="agent"),
        Selection(user=""),
        Selection(agent="a", session=""),
        Selection(all=True, agent="a"),
    ],
)
def test_a_selection_that_does_not_say_whose_is_refused(selection: Selection) -> None:
    with pytest.raises(MemoryRefused):
        selected(selection)


def test_the_service_itself_names_every_scope() -> None:
    assert [clause.equals for clause in everything().any_of] == [{"scope": scope} for scope in SCOPES]
    assert [clause.equals for clause in of_tree("t").any_of] == [{"scope": "run", "tree": "t"}]
