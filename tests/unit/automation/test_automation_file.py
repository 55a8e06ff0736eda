"""Files of schedules, and what is said of wrong ones."""

from datetime import datetime
from pathlib import Path

import pytest

from cadre.automation.automation_file import read_automations
from cadre.automation.schedule import ScheduleSpec
from cadre.errors import SpecError

SCHEDULE = """
apiVersion: cadre.dev/v1
kind: Schedule
metadata: {name: report}
spec:
  agent: analyst
  task: Report of {{ tick.date() }}.
  cron: 30 7 * * mon-fri
  time_zone: Europe/Berlin
  start: 2026-11-01
  options: {max_steps: 5}
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "automations.yaml"
    file.write_text(text)
    return file


def test_a_file_holds_several(tmp_path: Path) -> None:
    one, other = read_automations(written(tmp_path, SCHEDULE + "---" + SCHEDULE.replace("report", "again")))
    assert isinstance(one, ScheduleSpec)
    assert (one.name, one.start, one.options) == ("report", datetime(2026, 11, 1), {"max_steps": 5})
    assert other.name == "again"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("cron: 30 7 * * mon-fri", "cron: 61 7 * * *", "cron: '61 7"),
        ("cron: 30 7 * * mon-fri", "cron: 0 0 31 2 *", "cron: '0 0 31 2 *'"),
        ("cron: 30 7 * * mon-fri", "every: 10 moons", "every: '10 moons' "),
        ("cron: 30 7 * * mon-fri", "every: 0.2", "every: 0.2 must "),
        ("  cron: 30 7 * * mon-fri", "  every: 5\n  cron: 30 7 * * *", "every, cron: "),
        ("Europe/Berlin", "Europe/Nowhere", "time_zone: 'Europe/Nowhere'"),
        ("max_steps: 5", "task: x", "options: task: "),
        ("tick.date() }}", "tick.date( }}", "task: line 1"),
        ("  agent: analyst", "  agent: an analyst", "agent name 'an analyst'"),
        ("  agent: analyst", "  agent: analyst\n  overlap: wait", "overlap: Invalid enum value 'wait'"),
        ("  agent: analyst", "  agent: analyst\n  when: now", "agent, task"),
        ("kind: Schedule", "kind: Cron", "kind: 'Cron': write Schedule or Trigger or Notice"),
        ("cadre.dev/v1", "cadre.dev/v2", "apiVersion: write cadre.dev/v1"),
        ("  agent: analyst\n", "", "agent: is missing"),
    ],
)
def test_a_wrong_file_is_explained(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in SCHEDULE
    with pytest.raises(SpecError) as caught:
        read_automations(written(tmp_path, SCHEDULE.replace(old, new)))
    assert message in str(caught.value)
    assert "automations.yaml: " in str(caught.value)
    assert "\n" not in str(caught.value)
