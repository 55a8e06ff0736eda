"""A service that has NATS, and waits for something else, does not say that NATS is away."""

from pathlib import Path

import httpx2

from harness.nats_server import free_port
from harness.patience import eventually
from harness.stack import Stack


def test_a_service_says_what_it_waits_for(tmp_path: Path) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    with Stack(tmp_path) as stack:
        memory = stack.add(
            "memory", "cadre_memory", start=False, QDRANT_URL=nobody, CADRE_MEMORY_EMBEDDINGS="none"
        )
        memory.start(wait=False)

        def waits() -> bool:
            try:
                missing = httpx2.get(f"{memory.url}/readyz").json().get("missing", "")
            except httpx2.TransportError:
                return False  # not listening yet
            return "Qdrant" in missing

        eventually(waits, what="it says that it waits for Qdrant", state=stack.logs)
        answer = httpx2.get(f"{memory.url}/anything")
        assert (answer.status_code, answer.json()["code"]) == (503, "starting")
        assert "Qdrant" in answer.json()["detail"]
