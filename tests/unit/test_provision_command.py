"""`cadre provision` refuses what can be no queue before it looks for a server."""

import pytest
from click.testing import CliRunner

from cadre.cli.main import group


@pytest.mark.parametrize("option", ["--agent", "--tool", "--pool"])
def test_a_name_that_can_be_no_queue_is_refused(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without the check it is this that is sent.
    monkeypatch.setenv("CADRE_NATS_URL", "http://no-nats")
    done = CliRunner().invoke(group, ["provision", option, "a b"], standalone_mode=False)
    assert f"{option}: the name 'a b'" in str(done.exception)
