"""Containers of manifests as processes of this machine: their files where they say, their variables."""

from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cadre.deploy.k8s.manifest import Manifest
from harness.stack import Stack

Pod = dict[str, Any]
ADMIN_KEY = "0123456789abcdef" * 4


def secret(manifests: Sequence[Manifest], name: str) -> dict[str, str]:
    """The texts in a Secret, as it is written or as an API server has it."""
    [found] = [m for m in manifests if m["kind"] == "Secret" and m["metadata"]["name"] == name]
    kept = {key: b64decode(value).decode() for key, value in found.get("data", {}).items()}
    written: dict[str, str] = found.get("stringData", {})
    return kept | written


class Place:
    """A pod as its node sets it up: its files where it says, its variables."""

    def __init__(self, root: Path, manifests: Sequence[Manifest], stack: Stack) -> None:
        self._root = root
        self._manifests = manifests
        self._stack = stack

    def arguments(self, name: str, pod: Pod) -> list[str]:
        """Its volumes are filled."""
        for mount in self._mounts(pod):
            [volume] = [v for v in pod["volumes"] if v["name"] == mount["name"]]
            for path, text in self._contents(volume).items():
                file = self._here(name, mount) / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
        return [self._translated(name, pod, argument) for argument in pod["containers"][0]["args"]]

    def _contents(self, volume: dict[str, Any]) -> dict[str, str]:
        """Texts by path."""
        if "emptyDir" in volume:
            return {}
        if "secret" in volume:
            return secret(self._manifests, volume["secret"]["secretName"])
        source = volume["configMap"]
        [data] = [
            m["data"] for m in self._manifests if m["kind"] == "ConfigMap" and m["metadata"]["name"] == source["name"]
        ]
        return {item["path"]: data[item["key"]] for item in source["items"]}

    def _mounts(self, pod: Pod) -> list[dict[str, Any]]:
        return [mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] != "tmp"]

    def _here(self, name: str, mount: dict[str, Any]) -> Path:
        return self._root / name / str(mount["name"])

    def _translated(self, name: str, pod: Pod, text: str) -> str:
        """A path of the container as one of this machine."""
        for mount in self._mounts(pod):
            text = text.replace(mount["mountPath"], str(self._here(name, mount)))
        return text

    def environment(self, name: str, pod: Pod) -> dict[str, str]:
        given = {
            v["name"]: self._translated(name, pod, v.get("value", "from elsewhere"))
            for v in pod["containers"][0]["env"]
        }
        here = {
            "CADRE_NATS_URL": self._stack.nats.url,
            "CADRE_HOST": "127.0.0.1",
            "CADRE_INSTANCE": f"{name}-0",
            "CADRE_MEMORY_DIRECTORY": str(self._root / "memory"),
            "CADRE_ADMIN_KEY": ADMIN_KEY,
        }
        # No Qdrant server is here: the memory service keeps its index itself.
        return {key: value for key, value in {**given, **here}.items() if key != "QDRANT_URL"}
