"""The command `cadre operator`."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

import click

from cadre.delivery import codec
from cadre.deploy.k8s.values import read_values
from cadre.errors import SetupError, SpecError
from cadre.service.extras import missing_package
from cadre.settings import read_settings
from cadre.spec.yaml_file import read_yaml
from cadre.telemetry.logs import configure_logging, log_all_output


@click.command("operator")
@click.option(
    "-f",
    "--values",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Values of all namespaces.",
)
@click.option("--namespace", "namespaces", multiple=True, help="Act here alone; in all namespaces unless given.")
@click.option(
    "--gateway",
    default="http://{gateway}.{namespace}.svc",
    show_default=True,
    help="Where a namespace's gateway is, which keeps its schedules, triggers, notices and budgets.",
)
@click.option("--port", type=int, help="Port of /healthz and /readyz; 0: it has none. [CADRE_PORT]")
def command(files: tuple[Path, ...], namespaces: tuple[str, ...], gateway: str, port: int | None) -> None:
    """Run what the objects of a Kubernetes cluster say: Agent, Team, ToolServer, Model, Schedule,
    Trigger, Notice, Budget.

    The cluster is that of the pod's service account, else of the kubeconfig.
    """
    try:
        from cadre_operator.cluster import Cluster
        from cadre_operator.gateways import (
            DefinitionObjects,
            Gateways,
            Notes,  # kopf's weight is not the command line's
        )
        from cadre_operator.operator import Operator
        from cadre_operator.reconcile import Reconciler
    except ModuleNotFoundError as error:
        raise missing_package("operator", error) from error
    try:
        layers = [_layer(file) for file in files]
        read_values(*layers)
        settings = read_settings(port=port)
        codec.close()  # agents' files are read in other threads
    except SetupError as error:
        click.echo(f"cadre: {error}", err=True)
        sys.exit(2)
    configure_logging("operator", settings.instance_name(), settings.log_level, settings.log_format)
    log_all_output()
    for chatty in ("httpx2", "kopf.objects", "aiohttp.access"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, logging.getLevelName(settings.log_level)))

    async def run() -> None:
        cluster = Cluster()
        try:
            gateways = Gateways(cluster, gateway)
            reconciler = Reconciler(cluster, DefinitionObjects(gateways), Notes(cluster, gateways), layers)
            await Operator(reconciler, namespaces).run(settings.host, settings.port)
        finally:
            await cluster.close()

    asyncio.run(run())


def _layer(file: Path) -> dict[str, Any]:
    data = read_yaml(file, SpecError)
    if not isinstance(data, dict | None):
        raise SpecError("must be a mapping, as docs/deploy.md shows", files=(file,))
    return data or {}
