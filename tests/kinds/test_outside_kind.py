"""A kind of agent from another distribution works like Cadre's own: nothing of Cadre knows it by name.

It is installed for subprocesses only (an entry point next to its package), so each file of `patient/` and
`shown/` is a session of pytest. The kind of `shown/` is the one that docs/architecture.md shows.
"""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs" / "architecture.md").read_text()
PAGE = PAGE.partition("## Add a kind")[2].partition("## Add a door")[0]

LINES = 70
"""The most lines, blank ones left out, of the kind that the page shows."""


def run_file(file: Path, site: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)],
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def block(language: str) -> str:
    [found] = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)
    return str(found)


def install(site: Path) -> Path:
    """Write what the page shows into a folder, as an installer would leave it there; returns the folder."""
    about = site / "reviewed_kind-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "reviewed_kind.py").write_text(block("python"))
    (site / "forecaster.yaml").write_text(block("yaml"))
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: reviewed-kind\nVersion: 1.0\n")
    groups = tomllib.loads(block("toml"))["project"]["entry-points"]
    lines = [f"[{group}]\n{name} = {where}\n" for group, of in groups.items() for name, where in of.items()]
    (about / "entry_points.txt").write_text("".join(lines))
    return site


@pytest.fixture
def site_of_page(tmp_path: Path) -> Path:
    """Return a folder with what the page shows, as an installer would leave it there."""
    return install(tmp_path)


@pytest.mark.parametrize("file", sorted(path.name for path in (HERE / "patient").glob("*.py")))
def test_a_kind_from_outside(file: str) -> None:
    run_file(HERE / "patient" / file, HERE / "site")


def test_the_kind_of_the_page_runs_as_it_stands_there(site_of_page: Path) -> None:
    run_file(HERE / "shown" / "reviewing.py", site_of_page)


def test_the_kind_of_the_page_is_small() -> None:
    assert len([line for line in block("python").splitlines() if line]) <= LINES


def ran(code: str, *sites: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sites))},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or done.stderr


USES = """
from patient_kind.records import Noted, PatientSpec
from cadre.delivery.codec import decode, encode
from cadre.journal.entry import Entry

spec = cadre.Agent("a", kind="patient", patient=PatientSpec(pause=2.0)).spec
entry = Entry(run="r", agent="a", n=1, at=1.0, events=[Noted(step=1, calls=2)])
print(spec.section(PatientSpec).pause, decode(encode(entry), Entry).events[0].calls)
"""


@pytest.mark.parametrize(
    "first",
    [
        "import cadre",
        "import patient_kind.records, cadre",
        "import patient_kind.kind, cadre",
        "import cadre.events, cadre.views.story, patient_kind, cadre",
        "import cadre.service.agent, cadre",
        "import cadre; cadre.Agent(name='a', description='b')",
    ],
)
def test_the_order_of_imports_does_not_matter(first: str) -> None:
    assert ran(f"{first}\n{USES}", HERE / "site") == "2.0 2"


REGISTERS = """
from cadre.errors import KindError
from cadre.spec.kinds import register_kind
from reviewed_kind import DECLARATION, ReviewedSpec
from cadre import Agent

def code(declaration):
    try:
        register_kind(declaration)
    except KindError as error:
        return error.code
"""


def test_a_kind_is_registered_before_the_first_use(site_of_page: Path, tmp_path: Path) -> None:
    site = tmp_path / "no entry point"
    site.mkdir()
    (site / "reviewed_kind.py").write_text(block("python"))
    taken = "DECLARATION._replace(name='plan')"
    known = "Agent(name='a', description='b', kind='reviewed', reviewed=ReviewedSpec(times=3))"
    early = f"{REGISTERS}\nprint(code({taken}), code(DECLARATION), code(DECLARATION), {known}.spec.kind)"
    assert ran(early, site) == "kind-declared None None reviewed"
    # An entry point of the same name is the same kind, or another one that has no place.
    assert ran(early, site_of_page) == "kind-declared None None reviewed"
    other = f"{REGISTERS}\nregister_kind(DECLARATION._replace(purposes={{}}))\n"
    refused = "try: Agent(name='a', description='b')\nexcept KindError as error: print(error.code)"
    assert ran(other + refused, site_of_page) == "kind-declared"


@pytest.mark.parametrize(
    "use",
    [
        "Agent(name='a', description='b')",
        "from cadre.delivery import codec; codec.close()",
        "from cadre.journal.unions import close; close()",
        "import cadre.events; cadre.events.StepFinished, cadre.events.PlanMade",
        "from cadre.prompting.prompts import prompts_for; prompts_for(Agent(name='a').spec)",
    ],
)
def test_a_kind_that_registers_later_is_refused(use: str, tmp_path: Path) -> None:
    (tmp_path / "reviewed_kind.py").write_text(block("python"))
    assert ran(f"{REGISTERS}\n{use}\nprint(code(DECLARATION))", tmp_path) == "kinds-closed"


@pytest.mark.parametrize(
    ("code", "where", "body"),
    [
        ("kinds-loading", "wrong:DECLARATION", "import cadre; cadre.Agent(name='a', description='b')"),
        ("kind-invalid", "wrong:DECLARATION", "DECLARATION = None"),
        ("kind-invalid", "wrong:DECLARATION", "import nothing_of_this_name"),
        ("kind-invalid", "wrong:NOTHING", ""),
    ],
)
def test_an_entry_point_that_does_not_hold_is_refused(code: str, where: str, body: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(body)
    about = tmp_path / "wrong-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: wrong\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[cadre.kinds]\nwrong = {where}\n")
    use = """
import cadre
from cadre.errors import KindError
for _ in range(2):
    try:
        cadre.Agent(name='a', description='b')
    except KindError as error:
        print(error.code)
"""
    assert ran(use, tmp_path).split() == [code, code]
