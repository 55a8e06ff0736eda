"""Cassettes: what counts as the same request, and which answer it gets."""

import json
from pathlib import Path
from typing import Any

import pytest

from cadre.errors import SettingError
from cadre_scripted_model.record_replay import Cassette, Cassettes, canonical, fingerprint


def request(text: str = "hello", call_id: str = "call_1", **more: Any) -> dict[str, Any]:
    call = {"id": call_id, "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    return {
        "model": "m",
        "messages": [
            {"role": "user", "content": text},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call_id, "content": "1"},
        ],
        **more,
    }


def mark(body: dict[str, Any]) -> str:
    return fingerprint(canonical(body))


@pytest.mark.parametrize(
    "same",
    [
        request(call_id="call_other"),
        request(call_id="01hx4_2_0"),
        request(call_id="1"),
        request(temperature=0.5, stop=["x"], tools=None),
        dict(reversed(request().items())),
    ],
)
def test_what_differs_from_run_to_run_is_ignored(same: dict[str, Any]) -> None:
    assert mark(same) == mark(request())


@pytest.mark.parametrize("other", [request("hullo"), request(model="n"), request(stream=True), request(tools=[1])])
def test_what_is_asked_counts(other: dict[str, Any]) -> None:
    assert mark(other) != mark(request())


def test_times_and_made_up_ids_in_texts_are_masked() -> None:
    old = "at 2025-01-02T03:04:05.678Z run run_abcdefg1 3f2504e0-4f89-11d3-9a0c-0305e82c3301"
    new = "at 2026-07-08T09:10:11Z run run_0zzzzzz9 8c6d3a54-1111-4222-8333-944455556666"
    assert mark(request(old)) == mark(request(new))
    assert mark(request("use run_python")) != mark(request("use run_command"))
    assert mark(request("on 5 May")) != mark(request("on 6 May"))


def test_images_are_kept_by_their_hash() -> None:
    def shown(data: str) -> dict[str, Any]:
        return canonical(request(f"data:image/png;base64,{data}"))

    assert len(json.dumps(shown("A" * 5000))) < 500
    assert shown("A" * 5000) != shown("A" * 4999 + "B")


def tape(body: dict[str, Any], answer: str) -> Cassette:
    return Cassette(prompt="p", request=canonical(body), status=200, content_type="application/json", body=answer)


def test_equal_requests_get_their_answers_in_turn_in_any_order_with_others(tmp_path: Path) -> None:
    recording = Cassettes(tmp_path)
    for body, answer in ((request(), "first"), (request("other"), "else"), (request(), "second")):
        recording.keep(tape(body, answer))
    playing = Cassettes(tmp_path)
    assert playing.check() == 3

    def heard(*bodies: dict[str, Any]) -> list[str]:
        found = [playing.find(canonical(body)) for body in bodies]
        return [hit[1].body for hit in found if hit]

    assert heard(request("other"), request(), request(), request()) == ["else", "first", "second", "second"]
    playing.reset()
    assert heard(request()) == ["first"]
    assert heard(request("never")) == []


def test_a_miss_names_the_nearest_recording(tmp_path: Path) -> None:
    cassettes = Cassettes(tmp_path)
    assert cassettes.nearest(canonical(request())) == ""
    cassettes.keep(tape(request("quite other"), "x"))
    name = cassettes.keep(tape(request(), "y"))
    changed = request()
    changed["messages"][2]["content"] = "2"
    where = cassettes.nearest(canonical(changed))
    assert where.startswith(f"{name} is nearest; message 2 was ")
    assert "the same messages" in cassettes.nearest(canonical(request(model="n")))


def test_a_folder_without_readable_cassettes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="no cassettes here"):
        Cassettes(tmp_path).check()
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(SettingError, match="not a cassette"):
        Cassettes(tmp_path).check()
