"""All services get new NATS keys while they are at work: none is started again, no run is lost, no effect repeated."""

from pathlib import Path

from cadre.deploy.nats_files import SERVER_FILE
from cadre.protocol.nats_users import team_roles
from harness.command import Commands, only_line
from harness.patience import eventually
from harness.secured_stack import SecuredStack
from harness.stack import Gateway

HERE = Path(__file__).parent
TOOLS = ("note", "wipe", "refund")
ROLES = team_roles(["clerk"], [("tools", TOOLS)], [], memory=False, calls={"clerk": TOOLS})


def test_new_keys_for_services_at_work(tmp_path: Path) -> None:
    with SecuredStack(tmp_path, ROLES) as stack:
        stack.model(HERE / "sharing" / "script.yaml")
        gateway = Gateway(stack.add_as("gateway", "cadre_gateway"))
        stack.add_as("tools-tools", "cadre_tools", HERE / "held" / "tools.py")
        stack.add_as("agent-clerk", "cadre_agent", HERE / "sharing" / "first.yaml")
        stack.start_all()
        gateway.wait_offered(1)
        books = tmp_path / "books"
        run = gateway.submit("clerk", f"wipe {books} ")
        call = gateway.wait_for(run, "approval.requested")["event"]["call"]
        pids = {name: service.pid for name, service in stack.services.items()}
        users = [stack.services[name] for name in ("gateway", "tools-tools", "agent-clerk")]

        def returns() -> list[int]:
            return [service.log.read_text().count("connected to NATS again") for service in users]

        before = returns()
        stack.rotate()
        eventually(
            lambda: all(now > then for now, then in zip(returns(), before, strict=True)),
            what="all are back with their new keys",
            state=returns,
        )
        decided = gateway.request("POST", f"/v1/approvals/{call}", json={"verdict": "approved"})
        assert decided.status_code < 300, decided.text
        assert gateway.succeeded(run) == "first"
        assert books.read_text() == "wipe\n"
        assert gateway.answer("clerk", f"note {tmp_path / 'mark'} ") == "first"
        assert {name: service.pid for name, service in stack.services.items()} == pids
        assert all(service.is_running for service in stack.services.values())
        assert not stack.refusals()


def test_a_gateway_whose_keys_are_of_an_earlier_version_says_what_it_lacks(tmp_path: Path) -> None:
    stack = SecuredStack(tmp_path, ROLES)
    users = tmp_path / "auth" / SERVER_FILE
    lines = users.read_text().splitlines(keepends=True)
    earlier = [line for line in lines if ".at-rest" not in line]
    assert len(lines) - len(earlier) == 1, "the gateway alone has that right"
    users.write_text("".join(earlier))
    with stack:
        stack.environment["CADRE_NATS_CREDENTIALS"] = str(stack.key("operator"))
        cadre = Commands(stack.folder, stack.environment)
        assert cadre("provision", "--at-rest", HERE / "sharing" / "first.yaml").returncode == 0
        service = stack.add_as("gateway", "cadre_gateway")
        service.start()
        refused = only_line(cadre("retire", "clerk", CADRE_GATEWAY_URL=service.url), 1)
        assert "may not publish to $KV.cadre-registry.agent.clerk.at-rest" in refused
        assert "cadre auth init" in refused
        assert "Traceback" not in service.log.read_text()
