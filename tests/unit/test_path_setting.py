"""The path that a gateway is below: what it may be."""

import pytest

from cadre.errors import SettingError
from cadre.settings import read_gateway_path
from cadre_gateway.access.rules import RULES
from cadre_gateway.doors.open_doors import built_in_doors


@pytest.mark.parametrize(("given", "prefix"), [("", ""), ("/", ""), ("/agents/", "/agents"), ("/a/b-1.x", "/a/b-1.x")])
def test_a_slash_at_the_end_does_not_count(monkeypatch: pytest.MonkeyPatch, given: str, prefix: str) -> None:
    monkeypatch.setenv("CADRE_GATEWAY_PATH", given)
    assert read_gateway_path() == prefix


@pytest.mark.parametrize("wrong", ["agents", "/a b", "//x", "/x/../y", "/x?y", "/ümlaut", "/x\n", "https://a.b/x"])
def test_what_is_no_path_is_refused(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    monkeypatch.setenv("CADRE_GATEWAY_PATH", wrong)
    with pytest.raises(SettingError, match="CADRE_GATEWAY_PATH"):
        read_gateway_path()


def test_no_path_of_the_gateway_begins_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that strips the prefix leaves such a path, and it must not be stripped again."""
    paths = {rule.path for rule in [*RULES, *(rule for door in built_in_doors() for rule in door.rules)]}
    for first in {path.split("/")[1] for path in paths if not path.startswith("/{")} - {""}:
        monkeypatch.setenv("CADRE_GATEWAY_PATH", f"/{first}/agents")
        with pytest.raises(SettingError, match="CADRE_GATEWAY_PATH"):
            read_gateway_path()
