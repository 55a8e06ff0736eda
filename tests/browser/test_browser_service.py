"""The browser as a service of a deployment: killed in the middle of a run, and the shipped team at work."""

import tempfile
from pathlib import Path

from harness.command import run_demo
from harness.patience import eventually
from harness.people import decide, observed, waiting
from harness.stack import Stack
from integration.web_server import WebServer

TEAM = Path(__file__).parent / "team"
SHIPPED = Path(__file__).parents[2] / "teams"


def processes_of(service: int) -> list[str]:
    """Command lines of the browsers of a service, by its process id."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"cadre-browser-{service}-" in line:
            found.append(line)
    return found


def test_a_killed_service_takes_its_browsers_along_and_the_next_one_goes_on(tmp_path: Path, web: WebServer) -> None:
    with Stack(tmp_path) as stack:
        stack.model(TEAM / "script.yaml")
        stack.agent(TEAM / "watcher.yaml", start=False)
        stack.tools(TEAM / "tools.py", start=False)
        stack.add("sandbox", "cadre_sandbox", start=False)
        browser = stack.add(
            "browser", "cadre_tools", "cadre_browser", start=False, CADRE_BROWSER_PRIVATE="127.0.0.1/32"
        )
        gateway = stack.open_gateway(1)
        run = gateway.submit("watcher", f"Buy a lamp at {web.url}/shop.html")
        (call,) = waiting(gateway, run)
        assert browser.process is not None
        first = browser.process.pid
        assert processes_of(first)
        browser.kill()
        eventually(lambda: not processes_of(first), what="no browser outlives its service")
        browser.start()
        assert decide(gateway, call["call"], "approved").status_code == 200
        assert gateway.succeeded(run) is True
        read = observed(gateway.finished(run))
        assert f"opened again at {web.url}/shop.html, scrolled to 700" in read
        assert not list(Path(tempfile.gettempdir()).glob(f"cadre-browser-{first}-*")), "profiles are swept up"
        second = browser.process.pid
        assert processes_of(second)
        browser.terminate()
        eventually(lambda: not processes_of(second), what="no browser outlives its service")


def test_the_shopper_finds_the_cheapest_lamp(tmp_path: Path) -> None:
    done = run_demo(SHIPPED / "shopper", tmp_path, CADRE_BROWSER_PRIVATE="127.0.0.1/32")
    assert done.stdout.splitlines()[-1] == (
        "Calix for 48.90 euros is the cheapest in stock; its data sheet says: Calix: wall lamp, 7 W, 25 cm"
    )
