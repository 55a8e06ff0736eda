"""An operator that runs for months remembers what there is, and not all that there ever was."""

from pathlib import Path

import pytest

from cadre_operator.cluster import Cluster
from cadre_operator.gateways import DefinitionObjects, Gateways, Notes
from cadre_operator.reconcile import Reconciler
from kube.api_server import ApiServer
from kube.objects import agent, put


async def test_what_is_gone_is_forgotten(api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    values = {
        "image": "cadre:0.1.0",
        "keda": False,
        "model": {"url": "https://models.example/v1", "name": "m"},
    }
    cluster = Cluster()
    gateways = Gateways(cluster, "http://127.0.0.1:9")
    reconciler = Reconciler(cluster, DefinitionObjects(gateways), Notes(cluster, gateways), [values])

    async def remembered() -> int:
        await reconciler.reconcile("cadre")
        return len(reconciler._applied.get("cadre", {}))

    try:
        assert not await reconciler.reconcile("cadre")
        await put(api, agent("stays"))
        assert await reconciler.reconcile("cadre")
        of_one = await remembered()
        for number in range(3):
            await put(api, agent(f"comes-{number}"), agent("stays", instructions=f"Try {number}."))
            assert await remembered() > of_one
            await _delete(api, f"comes-{number}")
            assert await remembered() == of_one
        assert all(len(digest) == 32 for digest, _ in reconciler._applied["cadre"].values())
        await _delete(api, "stays")
        assert await remembered() == 0
        assert reconciler._applied == {}
        assert not await reconciler.reconcile("cadre")
    finally:
        await cluster.close()


async def _delete(api: ApiServer, name: str) -> None:
    api.store.delete(api.resource("Agent"), "cadre", name)
    await api.notify()
