"""A recorder of a running stack, which copies the journals and messages that its streams hold."""

import asyncio
import base64
import gzip
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import nats

from cadre.adapters.nats.streams import jetstream
from cadre.service.platform import Platform, open_platform
from cadre.settings import Settings
from harness.stack import Gateway, Stack

T = TypeVar("T")


class Recorder:
    """A stack at work, and the folder that its journals go to."""

    def __init__(self, folder: Path, stack: Stack, gateway: Gateway) -> None:
        self.folder, self.stack, self.gateway = folder, stack, gateway

    def finished(self, agent: str, task: str, **fields: Any) -> str:
        run = self.gateway.submit(agent, task, **fields)
        self.gateway.finished(run)
        return run

    def save(self, name: str, *runs: str) -> None:
        """All entries of the runs' trees as the streams hold them, in stream order."""
        lines = self.with_platform(lambda platform: entries_of(platform, list(runs)))
        write(self.folder / f"{name}.jsonl.gz", lines)

    def with_platform(self, act: Callable[[Platform], Awaitable[T]]) -> T:
        async def within() -> T:
            settings = Settings(nats_url=self.stack.nats.url, drain_seconds=1)
            platform = await open_platform("recorder", settings)
            try:
                return await act(platform)
            finally:
                await platform.registry.stop()
                await platform.nc.close()

        return asyncio.run(within())


def write(path: Path, lines: list[dict[str, Any]]) -> None:
    text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{path.name}: {len(lines)} entries, {path.stat().st_size} bytes", file=sys.stderr)


async def entries_of(platform: Platform, runs: list[str]) -> list[dict[str, Any]]:
    found = []
    for run in runs:
        stream = platform.topology.stream_of(run)
        subject = platform.topology.journals_of_tree(run)
        after = 0
        while True:
            query = {"seq": after + 1, "batch": 100, "next_by_subj": subject}
            page = await jetstream.batch(platform.nc, stream, query)
            if not page:
                break
            after = page[-1].seq
            for held in page:
                line: dict[str, Any] = {
                    "seq": held.seq,
                    "subject": held.subject,
                    "entry": json.loads(held.data),
                }
                if ref := line["entry"].get("ref"):
                    line["blob"] = json.loads(await platform.blobs.get(ref))
                found.append(line)
    return found


def save_messages(recorder: Recorder) -> None:
    """One stored message of each kind, as bytes, with its headers."""

    async def collect(platform: Platform) -> list[dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        js = platform.nc.jetstream()
        for shard in range(platform.topology.shards):
            stream = platform.topology.stream(shard)
            info = await js.stream_info(stream)
            for seq in range(1, info.state.last_seq + 1):
                try:
                    message = await js.get_msg(stream, seq)
                except nats.js.errors.NotFoundError:
                    continue
                if message.data is None or not message.subject or ".run." in message.subject:
                    continue
                kind = json.loads(message.data)["type"]
                if kind not in found:
                    found[kind] = {
                        "type": kind,
                        "subject": message.subject,
                        "headers": message.headers or {},
                        "data": base64.b64encode(message.data).decode(),
                    }
        return [found[kind] for kind in sorted(found)]

    write(recorder.folder / "messages.jsonl.gz", recorder.with_platform(collect))
