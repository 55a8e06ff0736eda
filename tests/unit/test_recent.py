"""The bounded dictionary: what was stored longest ago makes room."""

from cadre.recent import Recent


def test_the_oldest_makes_room_and_what_is_stored_again_is_new() -> None:
    recent = Recent[str, int](2)
    recent["a"] = 1
    recent["b"] = 2
    recent["a"] = 3
    recent["c"] = 4
    assert list(recent.items()) == [("a", 3), ("c", 4)]


def test_reading_does_not_keep_an_item() -> None:
    recent = Recent[str, int](2)
    recent["a"] = 1
    recent["b"] = 2
    assert recent.get("a") == 1
    assert recent["a"] == 1
    recent["c"] = 3
    assert "a" not in recent
