"""The command `cadre tracer`."""

from __future__ import annotations

import os
import sys

import click

from cadre.errors import SettingError, SetupError
from cadre.service.extras import missing_package
from cadre.service.frame import run
from cadre.service.platform import Platform
from cadre.settings import read_settings, read_tracing_settings

NICENESS = 19
"""On a machine that is busy the runs come first: a trace may come later, and none is lost."""


@click.command("tracer")
@click.option("--imported", is_flag=True, help="Export runs that were imported from files as well.")
@click.option("--port", type=int, help="Port of /healthz and /readyz; 0 takes a free one. [CADRE_PORT]")
def command(imported: bool, port: int | None) -> None:
    """Export the traces of all runs to the OTLP receiver at OTEL_EXPORTER_OTLP_ENDPOINT.

    They are made from the journals: what the receiver has missed while it was down, it gets when it is back. A
    second process shares the load.
    """
    try:
        settings, tracing = read_settings(port=port), read_tracing_settings()
        if not tracing.endpoint:
            raise SettingError(
                "OTEL_EXPORTER_OTLP_ENDPOINT is not set: name the receiver of the traces, as in"
                " OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318"
            )
        from cadre_tracer.tracer import Tracer  # the exporter's weight is not the command line's
    except ModuleNotFoundError as error:
        raise missing_package("tracer", error) from error
    except SetupError as error:
        click.echo(f"cadre: {error}", err=True)
        sys.exit(2)

    if hasattr(os, "nice"):
        os.nice(NICENESS)

    async def start(platform: Platform) -> Tracer:
        tracer = Tracer(platform, tracing, imported=imported)
        await tracer.start()
        return tracer

    sys.exit(run("tracer", settings, start))
