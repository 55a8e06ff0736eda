"""Programs that do what programs do: some well, some not."""

import json
import os
import signal
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cadre_program import tools
from openai import OpenAI

FOLDER = Path(os.environ.get("PROGRAM_FOLDER", "."))
CLIENT = OpenAI()
"""Made while the file is imported, before there is a run."""


def note(file: str, line: str) -> None:
    with (FOLDER / file).open("a") as out:
        out.write(f"{line}\n")


def main(task: str, arguments: dict[str, Any]) -> Any:
    """Do as the function of the task's first word does."""
    name, _, rest = task.partition(" ")
    if name == "arguments":
        return {"task": rest, "arguments": arguments}
    return globals()[name](rest)


def first_life() -> bool:
    """Say which process this is; True for the first one since the test began."""
    note("pids", str(os.getpid()))
    note("urls", os.environ["OPENAI_BASE_URL"])
    return len((FOLDER / "pids").read_text().splitlines()) == 1


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def ask(text: str, **options: Any) -> str:
    made = CLIENT.chat.completions.create(model="mine", messages=[{"role": "user", "content": text}], **options)
    return str(made.choices[0].message.content)


def simple(task: str) -> str:
    first_life()
    return ask(task)


def endless(task: str) -> str:
    number = 0
    while True:
        ask(f"{task} {number}")
        number += 1


def random_request(task: str) -> str:
    first = first_life()
    ask(task)
    said = ask(f"Ticket {os.urandom(4).hex()}")
    if first:
        die()
    tools.call_sync("book", n=1)
    return said


def random_call(task: str) -> str:
    first = first_life()
    tools.call_sync("book", n=int.from_bytes(os.urandom(4), "big"))
    if first:
        die()
    return "booked"


def seeded(task: str) -> str:
    import random
    import uuid

    first = first_life()
    said = ask(f"{task} {uuid.uuid4()} {random.random()}")
    if first:
        die()
    return said


def volatile(task: str) -> str:
    first = first_life()
    said = ask(task, user=os.urandom(4).hex(), metadata={"trace": os.urandom(4).hex()})
    if first:
        die()
    return said


def raising(task: str) -> str:
    first_life()
    ask(task)
    raise LookupError("no such trip")


def dying(task: str) -> str:
    first_life()
    die()
    return task


def booking(task: str) -> Any:
    first_life()
    return tools.call_sync("book", n=1)


def delegating(task: str) -> Any:
    first = first_life()
    said = tools.call_sync("odd", task="booking go")
    if first:
        die()
    return said


def impatient(task: str) -> str:
    """Ask by clients that wait 4 s for a byte, plain and in a stream."""
    first_life()
    client = OpenAI(timeout=4, max_retries=0)
    said = client.chat.completions.create(model="mine", messages=[{"role": "user", "content": task}])
    stream = client.chat.completions.create(
        model="mine", messages=[{"role": "user", "content": f"{task} again"}], stream=True
    )
    texts = [choice.delta.content or "" for chunk in stream for choice in chunk.choices]
    return f"{said.choices[0].message.content}|{''.join(texts)}"


def pairs(task: str) -> str:
    """Ask two at a time, for ever."""
    first_life()
    with ThreadPoolExecutor(2) as threads:
        while True:
            list(threads.map(ask, (f"{task} left", f"{task} right")))


def secrets(task: str) -> list[str]:
    return sorted(name for name, value in os.environ.items() if "key-of-the-endpoint" in value)


def hosted(task: str) -> str:
    try:
        ask(task, tools=[{"type": "web_search"}])
    except Exception as error:
        return str(error)
    return "was asked"


def waiting(task: str) -> str:
    """Ask, then work without Cadre until it is ended."""
    first_life()
    ask(task)
    while True:
        time.sleep(0.05)
        note("alive", "yes")


def responses(task: str) -> str:
    first = first_life()
    made = CLIENT.responses.create(model="mine", input=task)
    with CLIENT.responses.stream(model="mine", input=[{"role": "user", "content": f"{task} again"}]) as stream:
        said = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
    if first:
        die()
    return f"{made.output_text}|{said}"


def by_mcp(task: str) -> Any:
    """Ask the tools at the run's address by the Model Context Protocol."""
    first_life()

    def send(method: str, **told: Any) -> Any:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": told}).encode()
        request = urllib.request.Request(os.environ["CADRE_MCP_URL"], body, {"content-type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)["result"]

    send("initialize", protocolVersion="2025-06-18")
    names = [one["name"] for one in send("tools/list")["tools"]]
    found = send("tools/call", name="book", arguments={"n": 1})
    return [names, found["isError"], found["content"][0]["text"]]


def path(task: str) -> Any:
    """Ask a path of another API."""
    url, body = f"{os.environ['OPENAI_BASE_URL']}/{task}", b'{"model": "mine", "input": "x"}'
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body)) as answer:
            return {"status": answer.status, **json.load(answer)}
    except urllib.error.HTTPError as error:
        return {"status": error.code, **json.load(error)}
