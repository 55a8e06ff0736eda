"""An agent works on pages of MiniWoB++, as its package has them: scripted code, the real loop, a real Chromium."""

import functools
import importlib.util
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import cadre_browser
from browser.miniwob_tasks import FILL, TASKS
from cadre.engine.model_request import ModelRequest
from cadre.kinds.code.section import CodeSpec
from cadre.spec.agent import AgentSpec, Limits
from cadre.spec.kinds import sections
from cadre.testing import Team
from cadre.tools.loading import load_tools
from harness.patience import patience

SEED = 7

BROWSING = AgentSpec(
    name="worker",
    description="Does what a page asks for.",
    kind="code",
    tools=list(cadre_browser.__all__),
    limits=Limits(images=1),
    **sections(CodeSpec(observe="look")),
)


class Pages(SimpleHTTPRequestHandler):
    """The pages with time for a slow machine and always the same chance, both as MiniWoB++'s own runner sets them."""

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        if not self.path.endswith("/core/core.js"):
            super().do_GET()
            return
        text = (Path(self.directory) / "core" / "core.js").read_text()
        text += f"\ncore.EPISODE_MAX_TIME = {patience(120) * 1000:.0f};\nMath.seedrandom('{SEED}');\n"
        self.send_response(200)
        self.send_header("Content-Type", "text/javascript")
        self.end_headers()
        self.wfile.write(text.encode())


@pytest.fixture(scope="module")
def pages() -> Iterator[str]:
    found = importlib.util.find_spec("miniwob")
    if found is None or found.submodule_search_locations is None:
        pytest.skip("the package miniwob is not installed: make test-browser does that")
    html = Path(found.submodule_search_locations[0]) / "html"
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Pages, directory=str(html)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/miniwob"
    server.shutdown()
    thread.join()
    server.server_close()


def scripted(address: str, task: str) -> list[str]:
    """The model's answers: open the page and read it, do the task, read what it was worth."""
    begin = f'go_to(url="{address}/{task}.html")\nclick(text="START")\npage = read_page()\nprint(page)'
    do = f"import re\nquery = page.split(chr(10))[0]\n{FILL}\n{TASKS[task]}"
    end = 'import re\nfinal_answer(re.search("Last reward:\\\\s*(\\\\S+)", read_page())[1])'
    return [f"Thought: next.\n<code>\n{code}\n</code>" for code in (begin, do, end)]


@pytest.mark.parametrize("task", TASKS)
async def test_a_task_is_done(pages: str, task: str) -> None:
    answers = scripted(pages, task)
    seen: list[str] = []

    def model(request: ModelRequest) -> str:
        seen.append(str(request.messages[-1]["content"]))
        return answers[len(seen) - 1]

    async with Team([BROWSING], load_tools("cadre_browser"), model) as team:
        reward = await team.run("worker", f"Do the task at {pages}/{task}.html")
    assert float(reward) > 0, seen
    assert all("image_url" in one for one in seen[1:]), "each block is followed by a screenshot"
