"""The mutation check itself: what it plants, whom it asks, and that it finds what no one tests."""

from pathlib import Path

import pytest

from mutation.campaign import Campaign, Verdict
from mutation.explained import Explained
from mutation.main import report
from mutation.selection import FURTHER, Imports, Layout, draw
from mutation.sites import Module

TOLL = '''"""What a bridge costs."""

FREE_AXLES = 1


def toll(axles: int, deadline: float, latest: float) -> float:
    """Dearer by the axle."""
    extra = axles - FREE_AXLES
    return min(deadline, latest) + extra


def is_heavy(axles: int) -> bool:
    return axles > 3
'''
GATE = '''"""A gate asks for the toll."""

from toys.toll import toll


def ask(axles: int) -> float:
    return toll(axles, 1.0, 1.0)
'''
TEST_TOLL = """from toys.toll import is_heavy, toll


def test_it_grows_with_the_axles():
    assert toll(3, 1.0, 1.0) == 3.0


def test_heavy():
    assert is_heavy(4) and not is_heavy(3)


def test_it_fails_by_itself():
    assert not toll
"""
TEST_GATE = """from toys.gate import ask


def test_it_asks():
    assert ask(2) == 2.0
"""
TRY = "try:\n    pass\nexcept {}:\n    pass"
CASES = ("A() | B()", "A() | C()", "B() | C()")
ENDLESS = """def toll(axles, *_):
    while axles:
        axles -= 1
    return 2.0


def is_heavy(axles):
    return axles == 4
"""
EARLIER, SIGN = "toys.toll:toll:min-max:1", "toys.toll:toll:sign:1"


@pytest.fixture
def toys(tmp_path: Path) -> Layout:
    """A project of two modules and a test file for each, of which one test is red."""
    for name, text in {
        "lib/toys/__init__.py": "",
        "lib/toys/toll.py": TOLL,
        "lib/toys/gate.py": GATE,
        "lib/toys/late.py": "",
        "checks/toy_unit/test_toll.py": TEST_TOLL,
        "checks/toy_unit/test_gate.py": TEST_GATE,
    }.items():
        file = tmp_path / "project" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return Layout(tmp_path / "project", ("lib",), "checks", ("toy_unit",), ("toy_unit",))


def module(toys: Layout, name: str = "toys.toll") -> Module:
    return Module(name, Imports(toys).file_of(name))


def ids(found: Module) -> dict[str, str]:
    return {found.id_of(site): site.change for site in found.sites}


def tried(toys: Layout, *which: str, explained: Explained | None = None, anew: bool = False) -> dict[str, Verdict]:
    found = module(toys)
    mutations = [found.mutation(site) for site in found.sites if found.id_of(site) in which]
    verdicts = Campaign(toys, Imports(toys)).verdicts(mutations, explained or Explained({}), anew=anew)
    return {verdict.mutation.id: verdict for verdict in verdicts}


def test_a_mutation_is_named_by_what_it_changes(toys: Layout) -> None:
    assert ids(module(toys)) == {
        "toys.toll:<module>:constant:1": "1 -> 2",
        SIGN: "axles - FREE_AXLES -> axles + FREE_AXLES",
        "toys.toll:toll:return-none:1": "return min(deadline, latest) + extra -> return None",
        "toys.toll:toll:sign:2": "min(deadline, latest) + extra -> min(deadline, latest) - extra",
        EARLIER: "min(deadline, latest) -> max(deadline, latest)",
        "toys.toll:is_heavy:return-none:1": "return axles > 3 -> return None",
        "toys.toll:is_heavy:comparison:1": "axles > 3 -> axles <= 3",
        "toys.toll:is_heavy:boundary:1": "axles > 3 -> axles >= 3",
        "toys.toll:is_heavy:constant:1": "3 -> 4",
    }


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("f(a, b)", {"f(a, b) -> f(b, a)", "f(a, b) -> pass"}),
        ("x = not a", {"not a -> a", "not a -> True"}),
        ("x = a and b", {"a and b -> a or b", "a and b -> a", "a and b -> b"}),
        ("x = 1 if a else 2", {"1 if a else 2 -> 1 if not a else 2", "1 -> 2", "2 -> 3"}),
        ("x = [a for a in b if a.c]", {"for a in b if a.c -> for a in b"}),
        ("async def f():\n    await g()", {"await g() -> pass"}),
        (TRY.format("(A, B)"), {"except (A, B): -> except (A,):", "except (A, B): -> except (B,):"}),
        (TRY.format("A"), {"except A: -> except ():"}),
        ("match a:\n    case A() | B() | C():\n        pass", {f"A() | B() | C() -> {c}" for c in CASES}),
        ("raise A(1)", {"raise A(1) -> pass"}),
        ("a.b = c", {"a.b = c -> pass"}),
        ('"""Text."""\nassert a == 1\nlog.info(a, b)\nx: Literal[1]', set()),
    ],
)  # fmt: skip
def test_what_stands_in_for_what(tmp_path: Path, code: str, changes: set[str]) -> None:
    (tmp_path / "one.py").write_text(code)
    found = Module("one", tmp_path / "one.py")
    assert set(ids(found).values()) == changes


def test_a_mutation_is_one_change_and_the_tree_stays_as_it_was(toys: Layout) -> None:
    found = module(toys)
    (site,) = [site for site in found.sites if found.id_of(site) == EARLIER]
    source = found.mutation(site).source
    assert "return max(deadline, latest) + extra" in source
    assert "axles > 3" in source
    assert found.mutation(site).source == source
    assert "min(" in found.mutation(found.sites[0]).source


def test_tests_are_found_by_their_imports_with_their_distance(toys: Layout) -> None:
    imports = Imports(toys)
    near, far = "checks/toy_unit/test_toll.py", "checks/toy_unit/test_gate.py"
    assert imports.tests_of("toys.toll") == {near: 1, far: 2}
    assert imports.tests_of("toys.gate") == {far: 1, near: FURTHER}, "where they are few, all others too"
    assert imports.tests_of("toys.late") == {near: FURTHER, far: FURTHER}, "it may be loaded by its name"


def test_a_draw_is_the_same_for_a_seed_and_takes_from_each_module(toys: Layout) -> None:
    def drawn(seed: int, count: int) -> list[str]:
        modules = [module(toys), module(toys, "toys.gate")]
        return [found.id_of(site) for found, site in draw(modules, count, seed)]

    assert drawn(1, 4) == drawn(1, 4)
    assert len({tuple(drawn(seed, 4)) for seed in range(9)}) > 1
    assert {id.partition(":")[0] for id in drawn(1, 2)} == {"toys.toll", "toys.gate"}
    assert len(drawn(1, 0)) == len(set(drawn(1, 0))) > 9


def test_what_no_test_notices_is_listed(toys: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    found = tried(toys, EARLIER, SIGN)
    assert [id for id, verdict in found.items() if verdict.survived] == [EARLIER]
    assert found[SIGN].killed_by == "checks/toy_unit/test_toll.py::test_it_grows_with_the_axles"
    assert (toys.root / "lib/toys/toll.py").read_text() == TOLL
    assert "test_it_fails_by_itself: fails by itself" in capsys.readouterr().err
    assert report(found.values()) == 1
    printed = capsys.readouterr().out
    assert "2 mutations" in printed
    assert "1 noticed (0 by their time), 0 explained, 1 survived" in printed
    assert f"[\"{EARLIER}\"]\nchange = 'min(deadline, latest) -> max(deadline, latest)'" in printed


def test_what_is_explained_is_not_listed(toys: Layout, tmp_path: Path) -> None:
    file = tmp_path / "explained.toml"
    file.write_text(f'["{EARLIER}"]\nchange = "min(deadline, latest) -> max(deadline, latest)"\nwhy = "Equal."\n')
    explained = Explained.read(file)
    for anew in (False, True):
        found = tried(toys, EARLIER, explained=explained, anew=anew)
        assert found[EARLIER].why == "Equal."
        assert report(found.values()) == 0
    assert explained.outdated(ids(module(toys))) == []


def test_an_explanation_is_of_one_change_only(toys: Layout, tmp_path: Path) -> None:
    file = tmp_path / "explained.toml"
    file.write_text(f'["{EARLIER}"]\nchange = "min(a, b) -> max(a, b)"\nwhy = "Of other code."\n')
    explained = Explained.read(file)
    found = module(toys)
    assert [explained.why(found.mutation(site)) for site in found.sites] == [None] * len(found.sites)
    assert explained.outdated(ids(found)) == [EARLIER]
    file.write_text(f'["{EARLIER}"]\nchange = "min(a, b) -> max(a, b)"\n')
    with pytest.raises(ValueError, match="needs a `change` and a `why`"):
        Explained.read(file)


def test_a_bug_that_never_ends_is_noticed(toys: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    (toys.root / "lib/toys/toll.py").write_text(ENDLESS)
    monkeypatch.setattr("mutation.campaign.STARTING_SECONDS", 5.0)
    verdict = tried(toys, SIGN)[SIGN]
    assert (verdict.killed_by, verdict.timed_out) == ("out of time", True)


def test_only_files_that_run_the_function_are_asked(toys: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    (toys.root / "checks/toy_unit/test_a.py").write_text(
        "from toys.toll import is_heavy\n\n\ndef test_it():\n    assert is_heavy(4)\n"
    )
    monkeypatch.setattr("mutation.campaign.MOST_FILES", 1)
    heavy = "toys.toll:is_heavy:comparison:1"
    found = tried(toys, SIGN, heavy)
    assert found[SIGN].killed_by == "checks/toy_unit/test_toll.py::test_it_grows_with_the_axles"
    assert found[heavy].killed_by is not None
