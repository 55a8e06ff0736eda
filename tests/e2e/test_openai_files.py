"""Files that clients of OpenAI upload and name in requests: driven by the stock client."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI

from harness.patience import patience
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parent / "doors"
AGENTS = ["host"]

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfz0AEYBxVSF+FABJADveWkH6oAAAAAElFTkSuQmCC"
)


def test_a_file_is_uploaded_listed_read_and_deleted(openai_client: OpenAI) -> None:
    data = bytes(range(256)) * 40 + b"\r\n--\r\n"
    file = openai_client.files.create(file=('b\u00fccher "1".bin', data), purpose="user_data")
    assert (file.bytes, file.filename, file.purpose, file.status) == (
        len(data),
        'b\u00fccher "1".bin',
        "user_data",
        "processed",
    )
    assert openai_client.files.retrieve(file.id) == file
    assert openai_client.files.content(file.id).read() == data
    assert file.id in [one.id for one in openai_client.files.list()]
    assert openai_client.files.delete(file.id).deleted
    assert file.id not in [one.id for one in openai_client.files.list()]
    for use in (openai_client.files.retrieve, openai_client.files.content, openai_client.files.delete):
        with pytest.raises(openai.NotFoundError) as missing:
            use(file.id)
        assert missing.value.code == "file_not_found"


def test_lists_come_page_by_page_even_while_files_are_deleted(openai_client: OpenAI) -> None:
    kept = [openai_client.files.create(file=(f"{number}.txt", b"x"), purpose="evals").id for number in range(5)]
    newest_first = openai_client.files.list(purpose="evals", limit=2)
    assert ([one.id for one in newest_first.data], newest_first.has_more) == (kept[:2:-1], True)
    assert [one.id for one in openai_client.files.list(purpose="evals", limit=2, order="asc")] == kept
    for one in openai_client.files.list(purpose="evals", limit=2):
        openai_client.files.delete(one.id)
    assert openai_client.files.list(purpose="evals").data == []
    with pytest.raises(openai.BadRequestError) as refused:
        openai_client.files.list(after="nonsense")
    assert refused.value.param == "after"


def parts_by(protocol: str, *named: tuple[str, str]) -> list[dict[str, Any]]:
    """Files and images as parts of a message."""
    if protocol == "responses":
        return [{"type": f"input_{kind}", "file_id": file} for kind, file in named]
    return [{"type": kind, kind: {"file_id": file}} for kind, file in named]


def asked(client: OpenAI, gateway: Gateway, protocol: str, content: list[dict[str, Any]]) -> tuple[str, str]:
    """Return what the host answers to the message, and its run."""
    if protocol == "responses":
        told: Any = [{"role": "user", "content": [{"type": "input_text", "text": "a picture"}, *content]}]
        response = client.responses.create(model="host", input=told)
        return response.output_text, response.id.removeprefix("resp_")
    messages: Any = [{"role": "user", "content": [{"type": "text", "text": "a picture"}, *content]}]
    chat = client.chat.completions.create(model="host", messages=messages)
    return chat.choices[0].message.content or "", chat.id.removeprefix("chatcmpl-")


@pytest.mark.parametrize("protocol", ["chat", "responses"])
def test_a_request_names_files_by_their_ids(openai_client: OpenAI, gateway: Gateway, protocol: str) -> None:
    table = openai_client.files.create(file=("table.csv", b"a,b\n1,2\n"), purpose="user_data")
    other = openai_client.files.create(file=("table.csv", b"other"), purpose="user_data")
    _, run = asked(openai_client, gateway, protocol, parts_by(protocol, ("file", table.id), ("file", other.id)))
    listed = gateway.request("GET", f"/v1/runs/{run}/files").json()["files"]
    found = {gateway.request("GET", f"/v1/runs/{run}/files/{one['path']}").content for one in listed}
    assert "table.csv" in [one["path"] for one in listed]
    assert found == {b"a,b\n1,2\n", b"other"}
    # What a run was given stays with it.
    openai_client.files.delete(table.id)
    assert gateway.request("GET", f"/v1/runs/{run}/files/table.csv").status_code == 200


def test_a_picture_is_named_by_its_id(openai_client: OpenAI, gateway: Gateway) -> None:
    picture = openai_client.files.create(file=("dot.png", PIXEL), purpose="vision")
    answer, _ = asked(openai_client, gateway, "responses", parts_by("responses", ("image", picture.id)))
    assert answer == "1 image"
    text = openai_client.files.create(file=("dot.png", b"no picture"), purpose="vision")
    with pytest.raises(openai.BadRequestError) as refused:
        asked(openai_client, gateway, "responses", parts_by("responses", ("image", text.id)))
    assert refused.value.param == "file_id"
    with pytest.raises(openai.NotFoundError) as missing:
        asked(openai_client, gateway, "responses", parts_by("responses", ("file", "file-nobodys")))
    assert missing.value.code == "file_not_found"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"purpose": "decoration"}, "purpose"),
        ({"expires_after": {"anchor": "created_at", "seconds": 5}}, "expires_after"),
        ({"expires_after": {"anchor": "last_active_at", "seconds": 7200}}, "expires_after"),
    ],
)
def test_what_cannot_be_kept_is_refused(openai_client: OpenAI, fields: Any, param: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        openai_client.files.create(file=("a.txt", b"a"), **({"purpose": "user_data"} | fields))
    assert refused.value.param == param


def test_a_file_may_say_when_it_expires(openai_client: OpenAI) -> None:
    until: Any = {"anchor": "created_at", "seconds": 3600}
    file = openai_client.files.create(file=("a.txt", b"a"), purpose="batch", expires_after=until)
    assert file.expires_at == file.created_at + 3600


@pytest.mark.parametrize("body", [b"", b"--x", b"--x\r\n\r\n\r\n--x--"])
def test_a_body_that_is_no_form_is_refused(gateway: Gateway, body: bytes) -> None:
    for kind in ("multipart/form-data; boundary=x", "multipart/form-data", "application/json"):
        answer = gateway.request("POST", "/v1/files", content=body, headers={"Content-Type": kind})
        assert answer.status_code == 400, answer.text
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


@pytest.fixture(scope="module")
def small(stack: Stack, gateway: Gateway) -> Iterator[str]:
    """A gateway that takes files of 1,000 bytes."""
    service = stack.add("small", "cadre_gateway", CADRE_FILE_BYTES="1000")
    yield f"{service.url}/v1"
    service.terminate()


@pytest.mark.parametrize("size", [1_001, 200_000])
def test_a_file_that_is_too_large_is_refused(small: str, size: int) -> None:
    client = OpenAI(base_url=small, api_key="any", timeout=patience())
    with pytest.raises(openai.APIStatusError) as refused:
        client.files.create(file=("a.txt", b"a" * size), purpose="user_data")
    assert (refused.value.status_code, refused.value.code) == (413, "too_large")
    assert client.files.create(file=("a.txt", b"a" * 1_000), purpose="user_data").bytes == 1_000


def test_a_file_survives_the_gateways_death(openai_client: OpenAI, gateway: Gateway) -> None:
    file = openai_client.files.create(file=("a.txt", b"kept" * 100_000), purpose="user_data")
    gateway.service.kill()
    gateway.service.start()
    assert openai_client.files.content(file.id).read() == b"kept" * 100_000


def test_a_content_that_a_file_names_outlives_a_run_that_had_it(openai_client: OpenAI, gateway: Gateway) -> None:
    file = openai_client.files.create(file=("shared.txt", b"of both"), purpose="user_data")
    _, run = asked(openai_client, gateway, "responses", parts_by("responses", ("file", file.id)))
    assert gateway.request("DELETE", f"/v1/runs/{run}").status_code == 200
    assert openai_client.files.content(file.id).read() == b"of both"
