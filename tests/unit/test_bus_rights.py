"""Tests of what every NATS user may say and hear, as subjects; the server's own word on it is in integration/."""

import re
from pathlib import Path
from typing import Any

import pytest

from cadre.delivery.worker import impersonation, wrong_subject
from cadre.deploy import nats_files
from cadre.deploy.nats_files import server_file
from cadre.protocol.messages import (
    CodeFinished,
    Decision,
    ReplyTo,
    Report,
    Task,
    TimerFired,
    ToolCall,
    ToolResult,
)
from cadre.protocol.nats_users import Permissions, asks_leader, consumers, permissions, provisions, team_roles
from cadre.protocol.topology import Topology

DOCS = Path(__file__).parents[2] / "docs" / "security.md"
TOPOLOGY = Topology(2)
TREE, RUN = "T", "T_1_0"

ROLES = {
    role.user: role
    for role in team_roles(
        ["boss", "digger"],
        [("desk", ("look_up", "file_away"))],
        ["default", "big"],
        memory=True,
        calls={"boss": ("look_up",)},
    )
}


def matches(pattern: str, subject: str) -> bool:
    """As the server does: `*` is one token, `>` all that follow."""
    for i, token in enumerate(pattern.split(".")):
        rest = subject.split(".")[i:]
        if token == ">":
            return bool(rest)
        if not rest or token not in ("*", rest[0]):
            return False
    return len(pattern.split(".")) == len(subject.split("."))


def may_publish(user: str, subject: str) -> bool:
    allowed = permissions(ROLES[user], TOPOLOGY)
    is_denied = any(matches(pattern, subject) for pattern in allowed.never)
    return not is_denied and any(matches(pattern, subject) for pattern in allowed.publish)


def may_hear(user: str, subject: str) -> bool:
    return any(matches(pattern, subject) for pattern in permissions(ROLES[user], TOPOLOGY).subscribe)


INBOX = TOPOLOGY.inbox("boss", "{}", TREE, RUN)
EFFECT = TOPOLOGY.effect(TREE, "c", "{}", "{}")


@pytest.mark.parametrize(
    ("user", "subject"),
    [
        ("gateway", INBOX.format("gateway")),
        ("gateway", TOPOLOGY.definition("schedule", "daily")),
        ("gateway", TOPOLOGY.tick("daily")),
        ("gateway", "$JS.API.CONSUMER.MSG.NEXT.CADRE-AUTOMATION.schedules"),
        ("gateway", "$JS.API.CONSUMER.MSG.NEXT.CADRE-AUTOMATION.events"),
        ("gateway", "$JS.API.STREAM.PURGE.CADRE-AUTOMATION"),
        ("gateway", "cadre.audit.run-cancel"),
        ("agent-boss", TOPOLOGY.inbox("digger", "boss", TREE, RUN)),
        ("agent-boss", TOPOLOGY.call("look_up", "boss", TREE, "c")),
        ("agent-digger", TOPOLOGY.call("file_away", "digger", TREE, "c")),
        ("agent-boss", TOPOLOGY.journal(TREE, RUN)),
        ("agent-boss", TOPOLOGY.timer(TREE, RUN, "deadline")),
        ("agent-boss", TOPOLOGY.code("default", TREE, RUN)),
        ("tools-desk", INBOX.format("look_up")),
        ("tools-desk", EFFECT.format("boss", "look_up")),
        ("tools-desk", EFFECT.format("digger", "file_away")),
        ("agent-boss", EFFECT.format("boss", "look_up")),
        ("agent-boss", EFFECT.format("boss", "chosen_at_run_time")),
        ("tools-desk", TOPOLOGY.file(TREE, "a/b.txt")),
        ("tools-desk", TOPOLOGY.executor("look_up", "host-7")),
        ("tools-desk", "_INBOX_tools-desk.abc.1"),
        ("tools-desk", f"$JS.API.DIRECT.GET.CADRE-1.{EFFECT.format('boss', 'look_up')}"),
        ("sandbox-big", INBOX.format("sandbox")),
        ("sandbox-big", INBOX.format("python_interpreter_big")),
        ("sandbox-big", TOPOLOGY.quarantine(TREE, 7)),
        ("sandbox-big", TOPOLOGY.warm("big", TREE, RUN)),
        ("sandbox-big", "_INBOX_sandbox-big.abc.1"),
        ("memory", INBOX.format("recall")),
        ("memory", "_INBOX_gateway.abc.memory.1"),
    ],
)
def test_a_service_may_do_its_work(user: str, subject: str) -> None:
    assert may_publish(user, subject)


@pytest.mark.parametrize(
    ("user", "subject"),
    [
        ("agent-boss", INBOX.format("digger")),
        ("agent-boss", TOPOLOGY.call("look_up", "digger", TREE, "c")),
        ("agent-boss", TOPOLOGY.call("file_away", "boss", TREE, "c")),
        ("agent-boss", TOPOLOGY.lifecycle(TREE)),
        ("agent-boss", TOPOLOGY.definition("schedule", "daily")),
        ("agent-boss", TOPOLOGY.due("daily")),
        ("agent-boss", "cadre.audit.run-cancel"),
        ("tools-desk", "cadre.audit.run-cancel"),
        ("gateway", "$JS.API.STREAM.MSG.DELETE.CADRE-AUDIT"),
        ("gateway", "$JS.API.STREAM.PURGE.CADRE-AUDIT"),
        ("agent-boss", f"{TOPOLOGY.events_prefix}orders.new"),
        ("tools-desk", TOPOLOGY.tick("daily")),
        ("tracer", "$JS.API.CONSUMER.MSG.NEXT.CADRE-AUTOMATION.schedules"),
        ("tools-desk", INBOX.format("erase")),
        ("tools-desk", TOPOLOGY.journal(TREE, RUN)),
        ("tools-desk", TOPOLOGY.lifecycle(TREE)),
        ("tools-desk", TOPOLOGY.executor("erase", "host-7")),
        ("tools-desk", "_INBOX_agent-boss.abc.1"),
        ("agent-boss", TOPOLOGY.executor("look_up", "host-7")),
        ("sandbox-big", INBOX.format("boss")),
        ("sandbox-big", INBOX.format("python_interpreter")),
        ("agent-boss", EFFECT.format("digger", "look_up")),
        ("tools-desk", EFFECT.format("boss", "dig")),
        ("tools-desk", f"$JS.API.DIRECT.GET.CADRE-1.{EFFECT.format('boss', 'dig')}"),
        ("sandbox-big", EFFECT.format("boss", "python_interpreter_big")),
        ("sandbox-big", TOPOLOGY.file(TREE, "a/b.txt")),
        ("sandbox-big", TOPOLOGY.warm("default", TREE, RUN)),
        ("sandbox-big", "_INBOX_sandbox-default.abc.1"),
        ("memory", EFFECT.format("boss", "recall")),
        ("memory", "_INBOX_gateway.abc.1"),
        ("tracer", TOPOLOGY.journal(TREE, RUN)),
        ("tracer", INBOX.format("tracer")),
    ],
)
def test_no_service_may_speak_for_another(user: str, subject: str) -> None:
    assert not may_publish(user, subject)


def test_only_the_operator_makes_and_removes_streams_and_durable_queues() -> None:
    for user in ROLES:
        for call in ("STREAM.CREATE", "STREAM.DELETE", "STREAM.UPDATE", "STREAM.RESTORE"):
            assert may_publish(user, f"$JS.API.{call}.CADRE-0") is provisions(user), (user, call)
    assert [user for user in ROLES if provisions(user)] == ["operator"]


def test_who_may_read_any_message_is_who_asks_the_leader() -> None:
    for user in ROLES:
        assert may_publish(user, "$JS.API.STREAM.MSG.GET.CADRE-0") is asks_leader(user), user
        assert may_publish(user, "$JS.API.DIRECT.GET.CADRE-0") is asks_leader(user), user


def test_everybody_pulls_and_acks_what_lies_waiting_for_them_and_nothing_else() -> None:
    owned = {user: {consumer.name for consumer in consumers(role, TOPOLOGY)} for user, role in ROLES.items()}
    for user in {*ROLES} - {"operator", "gateway"}:
        for consumer in set().union(*owned.values()):
            is_own = consumer in owned[user]
            assert may_publish(user, f"$JS.API.CONSUMER.MSG.NEXT.CADRE-0.{consumer}") is is_own
            assert may_publish(user, f"$JS.ACK.CADRE-0.{consumer}.1.2.3.4.5") is is_own


def test_nobody_hears_what_another_is_answered() -> None:
    for user in {*ROLES} - {"operator"}:
        for other in ROLES:
            assert may_hear(user, f"_INBOX_{other}.abc.1") is (user == other)


def test_no_user_that_is_no_operator_has_a_right_to_everything() -> None:
    for user, role in ROLES.items():
        if user != "operator":
            allowed = permissions(role, TOPOLOGY)
            assert not {">", "*", "$JS.>", "$JS.API.>", "cadre.>"} & {*allowed.publish, *allowed.subscribe}


def test_nobody_is_given_rights_by_being_asked() -> None:
    text = server_file("auth.conf", ROLES.values(), dict.fromkeys(ROLES, "U"), TOPOLOGY)
    assert text.count("nkey:") == len(ROLES)
    assert "allow_responses" not in text


def test_another_prefix_is_another_deployment() -> None:
    theirs: Permissions = permissions(ROLES["tools-desk"], Topology(2, "other"))
    assert not any("cadre" in subject.lower() for subject in [*theirs.publish, *theirs.subscribe])


MESSAGE: dict[str, Any] = {"id": "x", "tree": TREE, "run": RUN, "at": 0.0}


CALL = ToolCall(**MESSAGE | {"id": f"{RUN}_1_0"}, agent="boss", tool="look_up", arguments={})
TASK = Task(**MESSAGE, agent="boss", task="do it")
CHILD = Task(**MESSAGE, agent="digger", task="do it", reply_to=ReplyTo("boss", "T"))


@pytest.mark.parametrize(
    ("message", "senders", "stranger"),
    [
        (ToolResult(**MESSAGE, call="c", tool="look_up"), ["look_up"], "erase"),
        (Report(**MESSAGE, child="c", agent="digger", state="success"), ["digger"], "look_up"),
        (Decision(**MESSAGE, call="c", verdict="approved"), ["gateway"], "boss"),
        (TASK, ["gateway", "boss"], "sandbox"),
        (CHILD, ["boss"], "look_up"),
        (CodeFinished(**MESSAGE, block="b", exchange=0), ["sandbox"], "look_up"),
        (TimerFired(**MESSAGE, name="deadline"), ["timer"], "boss"),
        (CALL, ["boss"], "digger"),
    ],
)
def test_a_message_is_from_whom_its_kind_says(message: Any, senders: list[str], stranger: str) -> None:
    """An agent must not approve its own calls, and a tool not delegate in an agent's name."""
    assert [impersonation(message, sender) for sender in senders] == [None] * len(senders)
    assert f"sent by '{stranger}'" in str(impersonation(message, stranger))


@pytest.mark.parametrize(
    ("message", "subject", "wrong"),
    [
        (CALL, TOPOLOGY.call("look_up", "boss", TREE, f"{RUN}_1_0"), None),
        (CALL, TOPOLOGY.call("look_up", "boss", TREE, f"{RUN}_1_1"), f"{RUN}_1_1"),
        (TASK, TOPOLOGY.inbox("boss", "gateway", TREE, RUN), None),
        (TASK, TOPOLOGY.inbox("digger", "gateway", TREE, RUN), "sent to 'digger'"),
        (TASK, TOPOLOGY.inbox("boss", "gateway", TREE, f"{RUN}_1_0"), f"sent to '{RUN}_1_0'"),
        (TASK, TOPOLOGY.inbox("boss", "gateway", "other", RUN), "of 'other'"),
    ],
)
def test_a_message_is_about_what_its_subject_says(message: Any, subject: str, wrong: str | None) -> None:
    found = wrong_subject(message, Topology.address(subject))
    assert found is None if wrong is None else wrong in str(found)


def test_the_documentation_names_every_role() -> None:
    table = re.findall(r"^\| `([a-z]+)(?:-<[a-z]+>)?` \|", DOCS.read_text(), re.MULTILINE)
    assert sorted(table) == sorted({role.kind for role in ROLES.values()})


def test_an_agent_may_go_on_calling_a_tool_that_left_its_file(tmp_path: Path) -> None:
    def update(**calls: tuple[str, ...]) -> tuple[str, ...] | None:
        roles = team_roles(["boss"], [], [], memory=False, calls=calls)
        nats_files.update_users(tmp_path, roles, TOPOLOGY)
        [boss] = [role for role in nats_files.known_roles(tmp_path) if role.user == "agent-boss"]
        return boss.calls

    assert update(boss=("look_up", "dig")) == ("look_up", "dig")
    assert update(boss=("file_away",)) == ("look_up", "dig", "file_away")
    assert update() is None, "any tool, where its file is not known"
