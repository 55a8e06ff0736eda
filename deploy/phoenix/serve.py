"""Starts Phoenix for this machine alone: `make observe` runs it in an environment of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import grpc.aio

HOST = "127.0.0.1"
PORT = os.environ.get("PHOENIX_PORT", "6006")

SETTINGS = {
    "PHOENIX_HOST": HOST,
    "PHOENIX_PORT": PORT,
    "PHOENIX_GRPC_PORT": os.environ.get("PHOENIX_GRPC_PORT", "4317"),
    "PHOENIX_WORKING_DIR": str(Path(__file__).parents[2] / "build" / "phoenix"),
    # It calls nobody, loads nothing from elsewhere, and has no assistant that runs commands here.
    "PHOENIX_TELEMETRY_ENABLED": "false",
    "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
    "PHOENIX_DISABLE_AGENT_ASSISTANT": "true",
    "PHOENIX_AGENTS_DISABLE_BASH": "true",
    "PHOENIX_AGENTS_DISABLE_WEB_ACCESS": "true",
    "PHOENIX_ENABLE_MCP_SERVER": "false",
}


def main() -> None:
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    Path(os.environ["PHOENIX_WORKING_DIR"]).mkdir(parents=True, exist_ok=True)
    _keep_grpc_to_this_machine()
    print(f"Phoenix: http://{HOST}:{PORT} (it takes a while to start)")
    print("In another shell, before `cadre up`:")
    print(f"  export OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://{HOST}:{PORT}/v1/traces", flush=True)
    sys.argv = ["phoenix", "serve"]
    from phoenix.server.main import main as serve

    serve()


def _keep_grpc_to_this_machine() -> None:
    """Phoenix has its gRPC port listen on every address, whatever PHOENIX_HOST says."""
    server = type(grpc.aio.server())
    add = server.add_insecure_port

    def add_here(self: grpc.aio.Server, address: str) -> int:
        return add(self, address.replace("[::]:", f"{HOST}:"))

    server.add_insecure_port = add_here


if __name__ == "__main__":
    main()
