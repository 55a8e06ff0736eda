"""Rules of policies: which calls they are about, what they may ask, what a verdict leads to, and what is journaled."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from cadre import tool
from cadre.client.errors import InvalidRequest
from cadre.engine.contract import contract_problems
from cadre.engine.policies.origins import links_in, normalized, stands_in
from cadre.errors import SpecError, ToolDefinitionError
from cadre.journal import events as ev
from cadre.loop.redecide import Journaled, redecide
from cadre.protocol.cards import ToolCard
from cadre.protocol.messages import CallerTerms, Task
from cadre.protocol.policy import Policy, Standing
from cadre.spec.agent import AgentSpec
from cadre.spec.agent_file import files_of_agent, read_agent
from cadre.spec.contract import TeamReach
from cadre.spec.policy_file import read_policies
from cadre.testing import Team, answer, call
from cadre.testing.team_run import TeamRun
from cadre.tools.loading import AnyTool
from unit.test_injected_calls import (
    EVIL,
    PAGE,
    READ,
    TOOLS,
    get_transactions,
    pay,
    read_mail,
    search_contacts,
    send_mail,
)


def policies(folder: Path, **spec: Any) -> list[Policy]:
    (folder / "house.yaml").write_text(yaml.safe_dump(spec))
    return read_policies("./house.yaml", folder)[0]


def clerk(folder: Path, spec: dict[str, Any], **more: Any) -> AgentSpec:
    tools = more.pop("tools", [one.name for one in TOOLS])
    return AgentSpec(name="clerk", description="Works.", tools=tools, policies=policies(folder, **spec), **more)


def decided(run: TeamRun) -> list[ev.PolicyDecided]:
    return [one for one in run.events if type(one) is ev.PolicyDecided]


def refused(run: TeamRun) -> list[ev.CallRefused]:
    return [one for one in run.events if type(one) is ev.CallRefused]


def replays(team: Team) -> bool:
    journals = [[Journaled(entry.n, entry) for entry in team.journal(run)] for run in team.run_ids()]
    found = redecide(journals, decisions_only=True)
    assert found.decided > 0
    return not found.divergences and not found.undecided


PAYING = [
    [call("plan_tools", tools=["pay"])],
    [READ],
    [call("pay", recipient=EVIL, amount=980)],
    [answer("done")],
]


# --- verdicts


async def test_the_strictest_rule_counts_in_whatever_order(tmp_path: Path) -> None:
    holds = {"calls": "pay", "hold": "true", "name": "a"}
    denies = {"calls": "pay", "deny": "amount > 100", "name": "b", "because": "Never by an agent."}
    for rules in ([holds, denies], [denies, holds]):
        async with Team([clerk(tmp_path, {"rules": rules})], TOOLS, [*PAYING[1:]]) as team:
            run = await team.start("clerk", "Pay.")
            await run.result()
            assert [one.verdict for one in decided(run) if one.name == "pay"] == ["deny"]
            assert [one.error.code for one in refused(run)] == ["policy"]
            assert replays(team)


async def test_a_denied_call_names_the_rule_the_place_and_what_counts(tmp_path: Path) -> None:
    async with Team([clerk(tmp_path, {"policies": ["careful-strict"]})], TOOLS, PAYING) as team:
        run = await team.start("clerk", "Pay the bill.")
        await run.result()
        (one,) = refused(run)
        for word in ("careful-strict.2", "recipient", EVIL, "read_mail[0].body", "search_contacts"):
            assert word in one.error.message
        (last,) = [one for one in decided(run) if one.verdict == "deny"]
        assert last.origins["recipient"] == ["text", "run1_2_0", "read_mail[0].body"]
        assert len(last.policy) == 64


async def test_an_expression_without_a_value_holds(tmp_path: Path) -> None:
    rules = [{"calls": "pay", "deny": "nothing_of_this_name > 3"}]
    async with Team([clerk(tmp_path, {"rules": rules})], TOOLS, PAYING[1:]) as team:
        run = await team.start("clerk", "Pay.")
        await run.settle()
        assert [one.name for one in run.held] == ["pay"]


async def test_a_policy_that_watches_journals_and_lets_pass(tmp_path: Path) -> None:
    async with Team(
        [clerk(tmp_path, {"mode": "watch", "rules": [{"calls": "pay", "deny": True}]})], TOOLS, PAYING[1:]
    ) as team:
        run = await team.start("clerk", "Pay.")
        assert await run.result() == "done"
        (one,) = [one for one in decided(run) if one.name == "pay"]
        assert (one.verdict, one.rules, one.watched) == ("allow", [], ["house.1"])
        assert replays(team)


async def test_the_short_form_counts_beside_policies(tmp_path: Path) -> None:
    spec = {"rules": [{"calls": "pay", "hold": "amount > 5000"}]}
    async with Team([clerk(tmp_path, spec, approvals={"pay": "always"})], TOOLS, PAYING[1:]) as team:
        run = await team.start("clerk", "Pay.")
        await run.settle()
        assert [one.name for one in run.held] == ["pay"]
        assert [one.rules for one in decided(run) if one.name == "pay"] == [["approvals"]]


async def test_known_values_and_other_rules_loosen(tmp_path: Path) -> None:
    for spec in (
        {"policies": ["careful"], "known": [EVIL[:2] + EVIL[2:]]},
        {"policies": ["careful"], "instead": {"careful.2": "never"}},
        {"policies": ["careful"], "instead": {"careful.2": {"calls": "pay", "hold": "amount > 5000"}}},
    ):
        async with Team([clerk(tmp_path, spec)], TOOLS, PAYING) as team:
            run = await team.start("clerk", "Pay the bill.")
            await run.settle()
            assert run.held == []
            assert await run.result() == "done"


async def test_a_file_more_never_loosens(tmp_path: Path) -> None:
    spec = {
        "policies": ["careful"],
        "rules": [{"calls": "pay", "hold": "false"}, {"calls": "*", "hold": "false"}],
    }
    async with Team([clerk(tmp_path, spec)], TOOLS, PAYING) as team:
        run = await team.start("clerk", "Pay the bill.")
        await run.settle()
        assert [one.name for one in run.held] == ["pay"]


# --- who decides, and for how long


async def test_a_hold_expires_as_its_rule_says(tmp_path: Path) -> None:
    rules = [
        {"calls": "pay", "hold": True, "within": "2h"},
        {"calls": "pay", "hold": True, "within": "1d", "name": "b"},
    ]
    async with Team([clerk(tmp_path, {"rules": rules}, approval_seconds=10.0)], TOOLS, PAYING[1:]) as team:
        run = await team.start("clerk", "Pay.")
        await run.settle()
        (held,) = run.held
        assert held.hold is not None
        assert held.hold.expires_at is not None
        assert held.hold.expires_at - held.hold.at == 7200
        team.skip(7201)
        assert await run.result() == "done"
        assert [one.verdict for one in run.events if type(one) is ev.ApprovalDecided] == ["expired"]
        assert replays(team)


async def test_only_those_whom_the_rule_names_decide(tmp_path: Path) -> None:
    rules = [{"calls": "pay", "hold": True, "by": ["finance"]}]
    async with Team([clerk(tmp_path, {"rules": rules})], TOOLS, PAYING[1:]) as team:
        run = await team.start("clerk", "Pay.")
        await run.settle()
        await run.approve()
        await run.settle()
        assert [one.code for one in run.events if type(one) is ev.RecordIgnored] == ["not-entitled"]
        await run.approve(by="finance")
        assert await run.result() == "done"
        assert [one.tool for one in team.calls if one.tool == "pay"] == ["pay"]
        assert replays(team)


async def test_a_correction_is_ruled_as_well(tmp_path: Path) -> None:
    rules = [
        {"calls": "pay", "hold": "true"},
        {"calls": "pay", "deny": "amount > 5000 or not known(recipient)"},
    ]
    spec = {"known": [EVIL], "rules": rules}
    async with Team([clerk(tmp_path, spec)], TOOLS, PAYING[1:]) as team:
        run = await team.start("clerk", "Pay.")
        await run.settle()
        with pytest.raises(InvalidRequest):
            await run.correct(arguments={"recipient": EVIL, "amount": 6000})
        # What a person writes is known.
        await run.correct(arguments={"recipient": "DE89370400440532013000", "amount": 6})
        assert await run.result() == "done"
        assert [one.arguments["amount"] for one in team.calls if one.tool == "pay"] == [6]
        assert replays(team)


# --- counts and sums


async def test_calls_of_one_step_are_decided_in_turn(tmp_path: Path) -> None:
    rules = [
        {"calls": "pay", "hold": "total('pay') + amount > 500"},
        {"calls": "pay", "hold": "count('pay') >= 3"},
    ]
    small = [call("pay", recipient="x", amount=200) for _ in range(4)]
    async with Team([clerk(tmp_path, {"rules": rules})], TOOLS, [small, [answer("done")]]) as team:
        run = await team.start("clerk", "Pay.")
        await run.settle()
        assert [one.verdict for one in decided(run)] == ["allow", "allow", "hold", "hold"]
        assert [one.rules for one in decided(run)] == [[], [], ["house.1"], ["house.1", "house.2"]]
        assert replays(team)


async def test_a_call_that_was_turned_down_does_not_count(tmp_path: Path) -> None:
    rules = [
        {"calls": "pay", "hold": "amount > 400"},
        {"calls": "pay", "deny": "total('pay') + amount > 500"},
    ]
    script = [
        [call("pay", recipient="x", amount=450)],
        [call("pay", recipient="x", amount=300)],
        [answer("done")],
    ]
    async with Team([clerk(tmp_path, {"rules": rules})], TOOLS, script) as team:
        run = await team.start("clerk", "Pay.")
        await run.settle()
        await run.reject()
        assert await run.result() == "done"
        assert [one.arguments["amount"] for one in team.calls] == [300]


# --- origins


@pytest.mark.parametrize(
    ("value", "text", "stands"),
    [
        ("www.a.com", "see www.a.com.", True),
        ("www.a.com", "www.a.com.evil.com", False),
        ("a.com", "www.a.com", False),
        ("www.a.com", "www.a.com/login", False),
        ("bob@x.com", "mail:bob@x.com, now", True),
        ("bob@x.com", "notbob@x.com", False),
        ("ob@x.com", "b.ob@x.com", False),
        ("13", "june 13", True),
        ("plan.txt", "myplan.txt", False),
        ("plan.txt", "the file 'plan.txt'", True),
    ],
)
def test_a_value_stands_as_a_whole_word(value: str, text: str, stands: bool) -> None:
    assert (stands_in(normalized(value), normalized(text)) >= 0) is stands


def test_values_are_compared_normalized() -> None:
    assert normalized("HTTPS://www.Ａ.com\u200b  x") == normalized("http://www.a.com x")


@pytest.mark.parametrize(
    ("text", "links"),
    [
        ("See https://a.example/x?y=1.", ["https://a.example/x?y=1"]),
        ("Go to www.a.example, or a.com/b!", ["www.a.example", "a.com/b"]),
        ("Mail bob@a.com about file.txt and 3.5 e.g. now.", []),
    ],
)
def test_links_in_a_text(text: str, links: list[str]) -> None:
    assert links_in(text) == links


@tool(read_only=True)
def read_file(path: str) -> str:
    """Reads a file."""
    return {"bill.txt": "Car Rental: pay to billing@cars.example.", "two.txt": "a@x.example or b@x.example"}[path]


@tool(does="write", what="name", to="email")
def add_contact(name: str, email: str) -> str:
    """Adds to the address book."""
    return "added"


@tool(read_only=True, trusted=["email"])
def my_contacts(first: str) -> list[dict[str, str]]:
    """Lists the address book."""
    return [{"name": "Fred", "email": "mark@black.example"}]


def mail(to: str) -> list[Any]:
    return [call("send_mail", recipients=[to], subject="x", body="y")]


@pytest.mark.parametrize(
    ("task", "reads", "to", "origin"),
    [
        ("Mail what bill.txt says.", [call("read_file", path="bill.txt")], "billing@cars.example", "sole"),
        ("Mail what two.txt says.", [call("read_file", path="two.txt")], "a@x.example", "named"),
        ("Mail what it says.", [call("read_file", path="bill.txt")], "billing@cars.example", "text"),
        ("Mail Sarah.", [call("search_contacts", person="Sarah")], "Sarah@work.example", "trusted"),
        ("Mail the sender.", [READ], "eve@evil.example", "field"),
        ("Mail mark@black.example.", [READ], "mark@black.example", "task"),
        ("Mail him.", [READ], "him@nowhere.example", "nowhere"),
    ],
)
async def test_where_a_value_first_stood(task: str, reads: list[Any], to: str, origin: str, tmp_path: Path) -> None:
    tools: list[AnyTool] = [read_file, search_contacts, read_mail, send_mail]
    spec = clerk(
        tmp_path,
        {"rules": [{"calls": "send", "deny": "origin(to) == 'never'"}]},
        tools=[one.name for one in tools],
    )
    async with Team([spec], tools, [reads, mail(to), [answer("done")]]) as team:
        run = await team.start("clerk", task)
        assert await run.result() == "done"
        (one,) = [one for one in decided(run) if one.name == "send_mail"]
        assert one.origins["recipients[0]"][0] == origin


async def test_a_value_that_the_run_wrote_is_not_trusted_when_it_is_read_back(tmp_path: Path) -> None:
    tools: list[AnyTool] = [read_mail, add_contact, my_contacts, send_mail]
    names = [one.name for one in tools]
    loose = {"calls": "write", "hold": "false"}
    spec = {"rules": [loose, {"calls": "send", "hold": "not known(to)"}]}
    script = [
        [READ],
        [_adds()],
        [call("my_contacts", first="F")],
        mail("mark@black.example"),
        [answer("done")],
    ]
    async with Team([clerk(tmp_path, spec, tools=names)], tools, script) as team:
        run = await team.start("clerk", "Mail Fred.")
        await run.settle()
        assert [one.name for one in run.held] == ["send_mail"]
    async with Team([clerk(tmp_path, spec, tools=names)], tools, [script[0], *script[2:]]) as team:
        run = await team.start("clerk", "Mail Fred.")
        assert await run.result() == "done"


def _adds() -> Any:
    return ev.RequestedCall("add_contact", {"name": "Fred", "email": "mark@black.example"})


async def test_what_people_say_on_the_way_counts_as_the_task(tmp_path: Path) -> None:
    spec = {"policies": ["careful"]}
    script = [
        [call("plan_tools", tools=["pay"])],
        [call("pay", recipient="DE11", amount=3)],
        [call("pay", recipient=EVIL, amount=980)],
        [answer("done")],
    ]
    async with Team([clerk(tmp_path, spec)], TOOLS, script) as team:
        run = await team.start("clerk", "Pay.")
        await run.settle()
        assert [one.name for one in run.held] == ["pay"]
        await run.tell(f"Pay {EVIL} too.")
        await run.approve()
        assert await run.result() == "done"
        assert replays(team)


async def test_a_wider_plan_is_for_a_person(tmp_path: Path) -> None:
    script = [
        [READ],
        [call("plan_tools", tools=["pay"])],
        [call("pay", recipient=EVIL, amount=980)],
        [answer("done")],
    ]
    async with Team([clerk(tmp_path, {"policies": ["careful"]})], TOOLS, script) as team:
        run = await team.start("clerk", f"Pay {EVIL}.")
        await run.settle()
        (held,) = run.held
        assert held.name == "plan_tools"
        await run.approve()
        assert await run.result() == "done"
        assert [one.tools for one in run.events if type(one) is ev.ToolsPlanned] == [["pay"]]
        assert replays(team)


# --- teams


MAILER = AgentSpec(name="mailer", description="Sends mail.", tools=["send_mail"])
MANAGES = [[call("plan_tools", tools=["mailer"])], [READ], [call("search_contacts", person="Sarah")]]


def team_of(folder: Path, mailer: AgentSpec = MAILER, spec: dict[str, Any] | None = None) -> Sequence[AgentSpec]:
    rules = {"policies": ["careful"]} if spec is None else spec
    boss = (
        clerk(folder, rules, tools=["read_mail", "search_contacts"], team=["mailer"])
        if rules
        else AgentSpec(name="clerk", description="x", tools=["read_mail", "search_contacts"], team=["mailer"])
    )
    return [boss, mailer]


@pytest.mark.parametrize(("to", "holds"), [("sarah@work.example", False), ("mark@black.example", True)])
async def test_a_managers_policies_rule_its_team(to: str, holds: bool, tmp_path: Path) -> None:
    boss = [*MANAGES, [call("mailer", task=f"Mail the list to {to}.")], [answer("done")]]
    member = [[call("plan_tools", tools=["send_mail"])], mail(to), [answer("sent")]]
    async with Team(team_of(tmp_path), TOOLS, {"clerk": boss, "mailer": member}) as team:
        run = await team.start("clerk", "Mail the list to Sarah.")
        await run.settle()
        assert [one.name for one in run.held] == (["send_mail"] if holds else [])
        if not holds:
            assert await run.result() == "done"
            assert replays(team)


async def test_a_member_that_was_not_planned_may_plan_nothing(tmp_path: Path) -> None:
    boss = [[READ], [call("mailer", task="Mail ann@home.example.")], [answer("done")]]
    member = [[call("plan_tools", tools=["send_mail"])], mail("ann@home.example"), [answer("sent")]]
    async with Team(team_of(tmp_path), TOOLS, {"clerk": boss, "mailer": member}) as team:
        run = await team.start("clerk", "Sum up. My friend is ann@home.example.")
        await run.settle()
        assert [one.name for one in run.held] == ["plan_tools"]


async def test_a_member_gets_the_part_of_the_plan_that_is_about_its_tools(tmp_path: Path) -> None:
    plan = [[call("plan_tools", tools=["mailer", "send_mail"])], *MANAGES[1:]]
    boss = [*plan, [call("mailer", task="Mail sarah@work.example.")], [answer("done")]]
    async with Team(
        team_of(tmp_path), TOOLS, {"clerk": boss, "mailer": [mail("sarah@work.example"), [answer("sent")]]}
    ) as team:
        run = await team.start("clerk", "Mail Sarah.")
        assert await run.result() == "done"


@pytest.mark.parametrize(("to", "holds"), [("ann@home.example", False), ("mark@black.example", True)])
async def test_a_members_own_policies_know_the_root_task(to: str, holds: bool, tmp_path: Path) -> None:
    careful, _ = read_policies("careful", tmp_path)
    mailer = msgspec.structs.replace(MAILER, policies=careful)
    boss = [[call("mailer", task=f"Mail {to}.")], [answer("done")]]
    member = [[call("plan_tools", tools=["send_mail"])], mail(to), [answer("sent")]]
    async with Team(team_of(tmp_path, mailer, {}), TOOLS, {"clerk": boss, "mailer": member}) as team:
        run = await team.start("clerk", "Mail the list to ann@home.example.")
        await run.settle()
        assert [one.name for one in run.held] == (["send_mail"] if holds else [])


MIDDLE = AgentSpec(name="middle", description="Leads.", team=["mailer"])


@pytest.mark.parametrize(
    ("to", "origin", "holds"),
    [
        ("ann@home.example", ["task"], False),
        ("sarah@work.example", ["trusted", "", "search_contacts[0].email"], False),
        ("mark@black.example", None, True),
        ("eve@evil.example", None, True),
    ],
)
async def test_values_keep_their_origins_through_managers_without_policies(
    to: str, origin: list[str] | None, holds: bool, tmp_path: Path
) -> None:
    rules, _ = read_policies("careful", tmp_path)
    own = msgspec.structs.replace(rules[0], instead={"careful.1": None})
    mailer = msgspec.structs.replace(MAILER, policies=[own])
    boss = AgentSpec(name="clerk", description="x", tools=["read_mail", "search_contacts"], team=["middle"])
    script = {
        "clerk": [
            [READ, call("search_contacts", person="Sarah")],
            [call("middle", task=f"Mail {to}.")],
            [answer("done")],
        ],
        "middle": [[call("mailer", task=f"The user wants you to mail {to}.")], [answer("done")]],
        "mailer": [mail(to), [answer("sent")]],
    }
    async with Team([boss, MIDDLE, mailer], TOOLS, script) as team:
        run = await team.start("clerk", "Mail the list to ann@home.example.")
        await run.settle()
        assert [one.name for one in run.held] == (["send_mail"] if holds else [])
        (decided,) = [
            event
            for run_id in team.run_ids()
            for event in team.attach(run_id).events
            if type(event) is ev.PolicyDecided
        ]
        found = decided.origins["recipients[0]"]
        assert found[0] == "text" if origin is None else found == origin
        assert replays(team)


async def test_a_leaf_plans_nothing_once_managers_without_policies_have_read(tmp_path: Path) -> None:
    careful, _ = read_policies("careful", tmp_path)
    mailer = msgspec.structs.replace(MAILER, policies=careful)
    boss = AgentSpec(name="clerk", description="x", tools=["read_mail"], team=["middle"])
    script = {
        "clerk": [[READ], [call("middle", task="Mail ann@home.example.")], [answer("done")]],
        "middle": [[call("mailer", task="Mail ann@home.example.")], [answer("done")]],
        "mailer": [[call("plan_tools", tools=["send_mail"])], [answer("sent")]],
    }
    async with Team([boss, MIDDLE, mailer], TOOLS, script) as team:
        run = await team.start("clerk", "Sum up. My friend is ann@home.example.")
        await run.settle()
        assert [one.name for one in run.held] == ["plan_tools"]


# --- words that others wrote


PUSHED = Standing(source="trigger bills", asked=["Pay the bill of \n."], plan=["pay"], has_read=True)


@pytest.mark.parametrize(
    ("standing", "task", "holds"),
    [
        (PUSHED, f"Pay the bill of {EVIL}.", True),
        (msgspec.structs.replace(PUSHED, asked=[f"Pay {EVIL} for \n."]), f"Pay {EVIL} for x.", False),
        (msgspec.structs.replace(PUSHED, plan=[]), "Pay the bill.", True),
        (None, f"Pay the bill of {EVIL}.", False),
    ],
)
async def test_the_message_of_a_trigger_is_not_the_users_word(
    standing: Standing | None, task: str, holds: bool, tmp_path: Path
) -> None:
    script = [[call("pay", recipient=EVIL, amount=980)], [answer("done")]]
    spec = {"policies": ["careful"], "rules": [{"calls": "pay", "hold": "amount > 1000"}]}
    async with Team([clerk(tmp_path, spec)], TOOLS, script) as team:
        run = await team.begin("clerk", task, standing=standing)
        await run.settle()
        assert [one.name for one in run.held] == (["pay"] if holds else [])
        if standing is not None and EVIL in task and holds:
            (decided,) = [event for event in run.events if type(event) is ev.PolicyDecided]
            assert decided.origins["recipient"] == ["text", run.id, "trigger bills.task"]
        assert replays(team)


async def test_a_turn_behind_a_triggers_run_does_not_take_its_message_for_the_users_word(
    tmp_path: Path,
) -> None:
    script = [
        [answer("done")],
        [call("plan_tools", tools=["pay"])],
        [call("pay", recipient=EVIL, amount=980)],
        [],
    ]
    async with Team([clerk(tmp_path, {"policies": ["careful"]})], TOOLS, script) as team:
        first = await team.begin("clerk", f"Pay the bill of {EVIL}.", standing=PUSHED)
        assert await first.result() == "done"
        run = await team.begin("clerk", "Go on.", continues=first.id)
        await run.settle()
        assert [one.name for one in run.held] == ["pay"]


TELLER = AgentSpec(name="teller", description="Pays.", tools=["pay"])


def paying(request: Any) -> Any:
    """Pays 200, no matter what the task is."""
    called = any(one["role"] == "tool" for one in request.messages)
    return [answer("done")] if called else [call("pay", recipient="a", amount=200)]


def daily(folder: Path, span: str, **more: Any) -> AgentSpec:
    return clerk(folder, {"rules": [{"calls": "pay", "deny": f"total('pay', per='{span}') + amount > 250"}]}, **more)


async def test_calls_of_one_tree_are_counted_together(tmp_path: Path) -> None:
    boss = daily(tmp_path, "tree", tools=["pay"], team=["teller"])
    script = {
        "clerk": [
            [call("pay", recipient="a", amount=100)],
            [call("teller", task="Pay b."), call("teller", task="Pay c.")],
            [call("pay", recipient="d", amount=50)],
            [answer("done")],
        ],
        "teller": lambda request: (
            [answer("paid")]
            if any(one["role"] == "tool" for one in request.messages)
            else [call("pay", recipient="x", amount=100)]
        ),
    }
    async with Team([boss, TELLER], TOOLS, script) as team:
        run = await team.start("clerk", "Pay.")
        assert await run.result() == "done"
        assert sum(one.arguments["amount"] for one in team.calls if one.tool == "pay") == 250
        assert replays(team)


async def test_calls_of_a_users_day_are_counted_together_until_midnight(tmp_path: Path) -> None:
    async with Team([daily(tmp_path, "user_day")], TOOLS, paying) as team:

        async def denials(user: str) -> list[str]:
            run = await team.start("clerk", "Pay.", user=user)
            assert await run.result() == "done"
            return [one.error.code for one in refused(run)]

        assert await denials("ann") == []
        assert await denials("ann") == ["policy"]
        assert await denials("ben") == []
        team._deployment.clock.skip(86_400)
        assert await denials("ann") == []
        assert replays(team)


@pytest.mark.parametrize("stores", range(1, 14))
async def test_a_death_between_the_count_and_the_journal_counts_no_call_twice(stores: int, tmp_path: Path) -> None:
    async with Team([daily(tmp_path, "user_day")], TOOLS, paying) as team:
        team.crash_after(stores)
        run = await team.start("clerk", "Pay.")
        await run.settle()
        second = await team.start("clerk", "Pay.")
        await second.settle()
        (decided,) = [one for one in second.events if type(one) is ev.PolicyDecided]
        assert decided.facts == {"total:pay:user_day": 200.0}
        assert replays(team)


async def test_a_call_that_was_turned_down_or_failed_counts_no_more(tmp_path: Path) -> None:
    spec = {"rules": [{"calls": "pay", "hold": "total('pay', per='user_day') + amount > 250"}]}
    script = [[call("pay", recipient="a", amount=300)], [answer("done")]]
    small = [[call("pay", recipient="a", amount=200)], [answer("done")]]
    async with Team([clerk(tmp_path, spec)], TOOLS, [*script, *small]) as team:
        first = await team.start("clerk", "Pay.")
        await first.settle()
        assert [one.name for one in first.held] == ["pay"]
        await first.reject()
        await first.result()
        second = await team.start("clerk", "Pay.")
        assert await second.result() == "done"
        assert [one.facts for one in second.events if type(one) is ev.PolicyDecided] == [{"total:pay:user_day": 0.0}]
        assert replays(team)


@pytest.mark.parametrize(
    ("task", "origin"),
    [
        ("Post it on our site www.our-company.com.They are waiting.", "task"),
        ("Post it on www.our-company.com.evil.example.", "nowhere"),
    ],
)
async def test_a_sentence_ends_also_where_a_blank_is_missing(task: str, origin: str, tmp_path: Path) -> None:
    script = [[call("get_page", url="www.our-company.com")], [answer("done")]]
    spec = {"rules": [{"calls": "*", "hold": "false"}]}
    async with Team([clerk(tmp_path, spec)], TOOLS, script) as team:
        run = await team.start("clerk", task)
        assert await run.result() == "done"
        (decided,) = [one for one in run.events if type(one) is ev.PolicyDecided]
        assert decided.origins["url"][0] == origin


async def test_a_person_may_have_a_destination_known_from_here_on(tmp_path: Path) -> None:
    other = "GB33BUKB20201555555555"
    script = [
        [call("plan_tools", tools=["pay"])],
        [READ],
        [call("pay", recipient=EVIL, amount=980)],
        [call("pay", recipient=EVIL, amount=10)],
        [call("pay", recipient=other, amount=10)],
        [answer("done")],
    ]
    async with Team([clerk(tmp_path, {"policies": ["careful"]})], TOOLS, script) as team:
        run = await team.start("clerk", "Pay the bill.")
        await run.settle()
        assert [one.name for one in run.held] == ["pay"]
        await run.approve(know=["recipient"])
        await run.settle()
        assert [one.arguments["recipient"] for one in team.calls if one.tool == "pay"] == [EVIL, EVIL]
        assert [one.arguments["recipient"] for one in run.held] == [other]
        decided = [one for one in run.events if type(one) is ev.PolicyDecided and one.name == "pay"]
        assert [one.origins["recipient"][0] for one in decided] == ["text", "listed", "nowhere"]
        assert replays(team)


async def test_a_rule_about_a_member_denies_the_delegation(tmp_path: Path) -> None:
    spec = {"rules": [{"calls": "delegate", "deny": "'secret' in task"}]}
    boss = [[call("mailer", task="Mail the secret.")], [answer("done")]]
    async with Team(team_of(tmp_path, spec=spec), TOOLS, {"clerk": boss, "mailer": []}) as team:
        run = await team.start("clerk", "x")
        assert await run.result() == "done"
        assert [(one.name, one.error.code) for one in refused(run)] == [("mailer", "policy")]


# --- other kinds, and functions of the caller


async def test_a_workflow_is_planned_by_its_file(tmp_path: Path) -> None:
    flow = """
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: flow}
spec:
  description: Pays.
  kind: workflow
  tools: [read_mail, pay]
  policies: [careful]
  workflow:
    start: read
    steps:
      read: {tool: {name: read_mail, arguments: {folder: inbox}}, next: pay}
      pay: {tool: {name: pay, arguments: {recipient: "%s", amount: 3}}}
"""
    for recipient, holds in (("DE89370400440532013000", False), ("{{ read[0].sender }}", True)):
        file = tmp_path / "flow.yaml"
        file.write_text(flow % recipient)
        async with Team([read_agent(file)], TOOLS) as team:
            run = await team.start("flow", "Go.")
            await run.settle()
            assert bool(run.held) is holds
            if not holds:
                await run.result()
                assert [one.tool for one in team.calls] == ["read_mail", "pay"]


async def test_the_actions_of_a_first_plan_are_planned(tmp_path: Path) -> None:
    careful, _ = read_policies("careful", tmp_path)
    agent = AgentSpec(
        name="planner", description="x", kind="plan", tools=["read_mail", "pay", "delete"], policies=careful
    )
    steps = [
        {"action": "read_mail", "args": {"folder": "inbox"}},
        {"action": "pay", "args": {"recipient": EVIL, "amount": 980}},
    ]
    for task, holds in ((f"Pay {EVIL}.", False), ("Pay the bill.", True)):
        async with Team([agent], TOOLS, [msgspec.json.encode({"steps": steps}).decode()]) as team:
            run = await team.start("planner", task)
            await run.settle()
            assert [one.name for one in run.held] == (["pay"] if holds else [])


async def test_a_function_of_the_caller_is_ruled(tmp_path: Path) -> None:
    card = ToolCard(
        name="ask_boss",
        description="Asks.",
        input_schema={"type": "object", "properties": {"text": {"type": "string"}}},
    )
    spec = {"rules": [{"calls": "ask_boss", "deny": "'secret' in text"}]}
    script = [[call("ask_boss", text="a secret")], [call("ask_boss", text="hello")], [answer("done")]]
    async with Team([clerk(tmp_path, spec)], TOOLS, script) as team:
        place: dict[str, Any] = {"tree": "called", "run": "called", "at": team.now()}
        terms = CallerTerms(tools=[card])
        await team.send(Task(id="called:task", agent="clerk", task="x", terms=terms, **place), "clerk")
        run = TeamRun(team, "called", "clerk")
        await run.settle()
        assert [one.error.code for one in refused(run)] == ["policy"]
        assert [one.arguments for one in run.held] == [{"text": "hello"}]


# --- what is wrong is refused


@pytest.mark.parametrize(
    ("written", "word"),
    [
        ("policies: [carefull]", "careful-strict"),
        ("policies: [./none.yaml]", "none.yaml"),
        ("policies: careful", "list"),
        ("policies: [{rules: [{on: pay, hold: 'true'}]}]", "calls"),
        ("policies: [{rules: [{calls: pay, hold: 'true', becuase: x}]}]", "because"),
        ("policies: [{rulez: []}]", "rules"),
        ("policies: [{rules: [{calls: pay}]}]", "hold or deny"),
        ("policies: [{rules: [{calls: pay, hold: a, deny: b}]}]", "hold or deny"),
        ("policies: [{rules: [{calls: pay, deny: a, by: finance}]}]", "within"),
        ("policies: [{rules: [{calls: pay, hold: 'amount >'}]}]", "amount >"),
        ("policies: [{rules: [{calls: pay, hold: knows(to)}]}]", "made_up"),
        ("policies: [{rules: [{calls: pay, hold: \"total('pay', per='week') > 3\"}]}]", "run"),
        ("policies: [{rules: [{calls: pay, hold: \"count('pay', 'week') > 3\"}]}]", "user_day"),
        ("policies: [{rules: [{calls: pay, hold: \"count('pay', does) > 3\"}]}]", "user_day"),
        ("policies: [{rules: [{calls: pay, hold: 'true', within: soon}]}]", "length of time"),
        ("policies: [careful, {instead: {careful.12: never}}]", "careful.1"),
        ("policies: [{tools: {x: {does: fly}}}]", "publish"),
        ("policies: [{tools: {x: {does: pay}}}]", "to"),
        ("policies: [{mode: dream}]", "watch"),
    ],
)
def test_a_policy_that_cannot_hold_is_refused(written: str, word: str, tmp_path: Path) -> None:
    file = tmp_path / "clerk.yaml"
    file.write_text(
        f"apiVersion: cadre.dev/v1\nkind: Agent\nmetadata: {{name: clerk}}\nspec:\n  description: x\n  {written}\n"
    )
    with pytest.raises(SpecError) as raised:
        read_agent(file)
    assert word in str(raised.value)
    assert str(file) in str(raised.value)


def test_what_policies_cannot_know_is_warned_of(tmp_path: Path) -> None:
    spec = clerk(tmp_path, {"rules": [{"calls": ["pay", "paay"], "deny": "true"}]}, tools=["pay", "do_anything"])
    found = contract_problems(spec, TeamReach(tools={one.name: one.card for one in TOOLS}))
    assert [(one.path, one.level) for one in found] == [
        ("spec.tools[1]", "warning"),
        ("spec.policies", "warning"),
    ]
    (tmp_path / "more.yaml").write_text("tools: {do_anything: {does: write, what: thing}}")
    said = msgspec.structs.replace(spec, policies=read_policies("./more.yaml", tmp_path)[0])
    assert contract_problems(said, TeamReach(tools={one.name: one.card for one in TOOLS})) == []


def test_a_policy_of_a_file_is_part_of_the_agent(tmp_path: Path) -> None:
    (tmp_path / "house.yaml").write_text(
        "apiVersion: cadre.dev/v1\nkind: Policy\nmetadata: {name: house}\nspec:\n  policies: [careful]\n"
        "  known: [Spotify]\n  trusted: {search_contacts: all}\n"
    )
    file = tmp_path / "clerk.yaml"
    file.write_text(
        "apiVersion: cadre.dev/v1\nkind: Agent\nmetadata: {name: clerk}\nspec:\n  description: x\n"
        "  policies: [./house.yaml, careful]\n"
    )
    assert [one.name for one in read_agent(file).policies] == ["careful", "house"]
    assert tmp_path / "house.yaml" in [one.resolve() for one in files_of_agent(file)]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"does": "fly"}, "does"),
        ({"does": "pay", "to": "whom"}, "recipient"),
        ({"does": "pay"}, "to="),
        ({"does": "delete", "read_only": True}, "read_only"),
        ({"trusted": ["all", "x"]}, "trusted"),
    ],
)
def test_a_tool_that_says_what_cannot_be_is_refused(options: Any, word: str) -> None:
    with pytest.raises(ToolDefinitionError) as raised:

        @tool(**options)
        def act(recipient: str) -> str:
            """Acts."""
            return recipient

    assert word in str(raised.value)


def test_a_card_says_what_a_tool_does() -> None:
    assert pay.card.does == "pay"
    assert (pay.card.action.to, pay.card.action.amount) == (["recipient"], "amount")
    assert read_mail.card.does == "read"
    assert get_transactions.card.action.trusted == ["recipient"]
    assert PAGE
