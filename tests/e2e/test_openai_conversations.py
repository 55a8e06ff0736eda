"""Conversations that clients of OpenAI begin and name in responses: driven by the stock client."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types.responses import FunctionToolParam

from harness.patience import patience
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parent / "doors"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfz0AEYBxVSF+FABJADveWkH6oAAAAAElFTkSuQmCC"
ADMIN = "a-key-for-the-administrator-of-this"

WEATHER: FunctionToolParam = {
    "type": "function",
    "name": "weather",
    "description": "Tell the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}


def said(client: OpenAI, conversation: str) -> list[Any]:
    """The texts of the messages in the order in which they were said; of other items, the type."""
    items: Any = client.conversations.items.list(conversation, order="asc", limit=100)
    return [item.content[0].text if item.type == "message" else item.type for item in items]


def ask(client: OpenAI, conversation: str, text: Any, **fields: Any) -> Any:
    return client.responses.create(**{"model": "host", "input": text, "conversation": conversation} | fields)


def test_a_conversation_is_begun_changed_and_deleted(openai_client: OpenAI) -> None:
    conversations = openai_client.conversations
    begun = conversations.create(metadata={"topic": "names"})
    assert (begun.object, begun.metadata) == ("conversation", {"topic": "names"})
    assert conversations.retrieve(begun.id) == begun
    changed = conversations.update(begun.id, metadata={"topic": "other"})
    assert (changed.id, changed.metadata) == (begun.id, {"topic": "other"})
    assert said(openai_client, begun.id) == []
    assert conversations.delete(begun.id).deleted
    for use in (conversations.retrieve, conversations.delete, conversations.items.list):
        with pytest.raises(openai.NotFoundError) as missing:
            use(begun.id)
        assert missing.value.code == "conversation_not_found"
    with pytest.raises(openai.NotFoundError):
        ask(openai_client, begun.id, "Hi")


def test_what_is_said_in_a_conversation_is_its_items(openai_client: OpenAI) -> None:
    talk = openai_client.conversations.create().id
    first = ask(openai_client, talk, "my name is Iris")
    assert first.conversation.id == talk
    second = ask(openai_client, talk, "what is my name?")
    assert second.output_text == "You are Iris."
    assert said(openai_client, talk) == ["my name is Iris", "Noted.", "what is my name?", "You are Iris."]
    newest = openai_client.conversations.items.list(talk, limit=3)
    assert (newest.data[0].id, newest.has_more) == (second.output[-1].id, True)
    found = openai_client.conversations.items.retrieve(second.output[-1].id, conversation_id=talk)
    assert found.to_dict()["content"] == second.output[-1].to_dict()["content"]


def test_calls_and_their_results_are_items(openai_client: OpenAI) -> None:
    talk = openai_client.conversations.create().id
    (call,) = [
        item
        for item in ask(openai_client, talk, "weather in Oslo", tools=[WEATHER]).output
        if item.type == "function_call"
    ]
    given = [{"type": "function_call_output", "call_id": call.call_id, "output": "3 degrees"}]
    assert ask(openai_client, talk, given).output_text == "It is 3 degrees."
    types = ["weather in Oslo", "function_call", "function_call_output", "It is 3 degrees."]
    assert said(openai_client, talk) == types
    assert openai_client.conversations.items.retrieve(call.id, conversation_id=talk).type == "function_call"


@pytest.mark.parametrize("when", ["at the beginning", "before the first response", "between responses"])
def test_items_that_a_client_adds_are_read(openai_client: OpenAI, when: str) -> None:
    items: Any = [
        {"role": "user", "content": "my name is Iris"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Noted."}]},
    ]
    talk = openai_client.conversations.create(items=items if when == "at the beginning" else []).id
    if when == "between responses":
        ask(openai_client, talk, "Hi")
    if when != "at the beginning":
        added = openai_client.conversations.items.create(talk, items=items)
        assert [item.type for item in added.data] == ["message", "message"]
    assert ask(openai_client, talk, "what is my name?").output_text == "You are Iris."
    assert said(openai_client, talk)[-4:-2] == ["my name is Iris", "Noted."]


def test_an_item_that_is_deleted_is_not_read_any_more(openai_client: OpenAI) -> None:
    talk = openai_client.conversations.create().id
    ask(openai_client, talk, "my name is Iris")
    items: Any = openai_client.conversations.items.list(talk, order="asc").data
    assert openai_client.conversations.items.delete(items[0].id, conversation_id=talk).id == talk
    with pytest.raises(openai.NotFoundError) as missing:
        openai_client.conversations.items.retrieve(items[0].id, conversation_id=talk)
    assert missing.value.code == "item_not_found"
    assert ask(openai_client, talk, "what is my name?").output_text != "You are Iris."
    assert said(openai_client, talk)[:2] == ["Noted.", "what is my name?"]
    after = openai_client.conversations.items.list(talk, order="asc", after=items[0].id)
    assert after.data[0].id == items[1].id


def test_another_agent_reads_the_conversation(openai_client: OpenAI) -> None:
    talk = openai_client.conversations.create().id
    ask(openai_client, talk, "Hi", model="clerk")
    ask(openai_client, talk, "my name is Iris")
    ask(openai_client, talk, "and now?", model="clerk")
    assert ask(openai_client, talk, "what is my name?").output_text == "You are Iris."
    assert len(said(openai_client, talk)) == 8


def test_what_a_turn_brings_is_part_of_the_conversation(openai_client: OpenAI) -> None:
    talk = openai_client.conversations.create().id
    told: Any = [
        {"role": "user", "content": "my name is Iris"},
        {"role": "assistant", "content": "Noted."},
        {"role": "user", "content": "Hi"},
    ]
    answer = ask(openai_client, talk, told).output_text
    assert said(openai_client, talk) == ["my name is Iris", "Noted.", "Hi", answer]
    assert ask(openai_client, talk, "what is my name?").output_text == "You are Iris."


def test_a_conversation_survives_the_gateways_death(openai_client: OpenAI, gateway: Gateway) -> None:
    talk = openai_client.conversations.create(metadata={"kept": "yes"}).id
    begun = ask(openai_client, talk, "tell a long story", background=True)
    gateway.service.kill()
    gateway.service.start()
    assert openai_client.conversations.retrieve(talk).metadata == {"kept": "yes"}
    run = begun.id.removeprefix("resp_")
    gateway.succeeded(run)
    assert [text[:4] for text in said(openai_client, talk)] == ["tell", "Once"]


def test_a_run_that_was_erased_is_no_part_of_it_any_more(openai_client: OpenAI, gateway: Gateway) -> None:
    talk = openai_client.conversations.create().id
    first = ask(openai_client, talk, "my name is Iris")
    openai_client.responses.delete(first.id)
    assert said(openai_client, talk) == []
    assert ask(openai_client, talk, "Hi").output_text == "Hello!"
    assert said(openai_client, talk) == ["Hi", "Hello!"]


def test_the_files_of_items_are_kept(openai_client: OpenAI) -> None:
    picture = f"data:image/png;base64,{PIXEL}"
    shown: Any = [{"role": "user", "content": [{"type": "input_image", "image_url": picture}]}]
    talk = openai_client.conversations.create(items=shown).id
    item: Any = openai_client.conversations.items.list(talk).data[0]
    file = item.to_dict()["content"][0]["file_id"]
    assert openai_client.files.content(file).read()[:4] == b"\x89PNG"
    assert ask(openai_client, talk, "a picture?").output_text == "1 image"
    openai_client.files.delete(file)
    answer: Any = openai_client.conversations.items.list(talk).data[0]
    openai_client.conversations.items.delete(answer.id, conversation_id=talk)
    assert ask(openai_client, talk, "a picture?").output_text == "0 image"


def test_what_cannot_be_kept_is_refused(openai_client: OpenAI) -> None:
    wrong: list[Any] = [
        {"items": [{"type": "spell"}]},
        {"items": [{"role": "user", "content": "x"}] * 21},
        {"metadata": {"a" * 65: "b"}},
        {"metadata": {str(number): "b" for number in range(17)}},
    ]
    for fields in wrong:
        with pytest.raises(openai.BadRequestError) as refused:
            openai_client.conversations.create(**fields)
        assert refused.value.code == "invalid_request"
    talk = openai_client.conversations.create().id
    large: Any = [{"role": "user", "content": "x" * 600_000}]
    with pytest.raises(openai.APIStatusError) as too_large:
        openai_client.conversations.items.create(talk, items=large)
    assert too_large.value.status_code == 413
    with pytest.raises(openai.BadRequestError) as unknown:
        openai_client.conversations.items.list(talk, after="msg_nobodys")
    assert unknown.value.param == "after"
    response = ask(openai_client, talk, "Hi")
    with pytest.raises(openai.BadRequestError) as both:
        ask(openai_client, talk, "Hi", previous_response_id=response.id)
    assert both.value.param == "previous_response_id"


# --- whose they are


@pytest.fixture(scope="module")
def locked(stack: Stack, gateway: Gateway) -> Iterator[str]:
    """A gateway that asks for keys."""
    service = stack.add("locked", "cadre_gateway", CADRE_AUTH="keys", CADRE_ADMIN_KEY=ADMIN)
    yield service.url
    service.terminate()


def client_of(url: str, **rights: Any) -> OpenAI:
    """The stock client with a new key of these rights."""
    administrator = OpenAI(base_url=f"{url}/v1", api_key=ADMIN, timeout=patience())
    name = f"k{os.urandom(4).hex()}"
    wanted = {"name": name, "roles": ["operator"], **rights}
    made = administrator.post("/keys", body=wanted, cast_to=dict[str, Any])
    return OpenAI(base_url=f"{url}/v1", api_key=made["token"], timeout=patience(), max_retries=0)


@pytest.mark.parametrize("own", [True, False])
def test_a_person_sees_only_their_own(locked: str, own: bool) -> None:
    ann, bob = (client_of(locked, user=user, own=own) for user in ("ann", "bob"))
    talk, file = ann.conversations.create().id, ann.files.create(file=("a", b"a"), purpose="user_data").id
    item = ask(ann, talk, "Hi").output[-1].id
    named: Any = [{"role": "user", "content": [{"type": "input_file", "file_id": file}]}]
    for foreign in (
        lambda: bob.conversations.retrieve(talk),
        lambda: bob.conversations.update(talk, metadata={}),
        lambda: bob.conversations.items.list(talk),
        lambda: bob.conversations.items.retrieve(item, conversation_id=talk),
        lambda: bob.conversations.items.delete(item, conversation_id=talk),
        lambda: bob.conversations.items.create(talk, items=named),
        lambda: bob.conversations.delete(talk),
        lambda: ask(bob, talk, "Hi"),
        lambda: bob.files.retrieve(file),
        lambda: bob.files.content(file),
        lambda: bob.files.delete(file),
        lambda: bob.responses.create(model="host", input=named),
    ):
        with pytest.raises(openai.NotFoundError):
            foreign()
    assert bob.files.list().data == []
    assert [one.id for one in ann.files.list()] == [file]
    assert said(ann, talk) == ["Hi", "Hello!"]
    administrator = OpenAI(base_url=f"{locked}/v1", api_key=ADMIN, timeout=patience())
    assert administrator.conversations.retrieve(talk).id == talk
    ann.files.delete(file)


def test_rights_hold_for_conversations_and_files(locked: str) -> None:
    viewer = client_of(locked, roles=["viewer"])
    for write in (
        lambda: viewer.conversations.create(),
        lambda: viewer.files.create(file=("a", b"a"), purpose="user_data"),
    ):
        with pytest.raises(openai.PermissionDeniedError) as denied:
            write()
        assert denied.value.type == "permission_error"
    poet = client_of(locked, agents=["host"])
    talk = poet.conversations.create().id
    assert ask(poet, talk, "Hi").output_text == "Hello!"
    assert said(poet, talk) == ["Hi", "Hello!"]
    with pytest.raises(openai.NotFoundError):
        client_of(locked, agents=["host"]).conversations.retrieve(talk)
    with pytest.raises(openai.AuthenticationError) as strange:
        OpenAI(base_url=f"{locked}/v1", api_key="cadre_nobodys").conversations.create()
    assert strange.value.type
