"""Bodies take no more memory than the gateway's container has room for."""

from pathlib import Path

import pytest

from cadre_gateway.requests import body
from cadre_gateway.requests.body import room_for_bodies

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("limit", "asked", "room"),
    [
        (f"{512 * MIB}\n", 0, 64 * MIB),
        (f"{8192 * MIB}\n", 0, 128 * MIB),
        ("max\n", 0, 128 * MIB),
        ("9223372036854771712\n", 0, 128 * MIB),
        (f"{512 * MIB}\n", 200 * MIB, 200 * MIB),
        (None, 0, 128 * MIB),
    ],
)
def test_the_room_for_bodies_follows_the_containers_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str | None, asked: int, room: int
) -> None:
    file = tmp_path / "memory.max"
    if limit is not None:
        file.write_text(limit)
    monkeypatch.setattr(body, "CONTAINER_LIMITS", (tmp_path / "none", file))
    assert room_for_bodies(asked) == room
