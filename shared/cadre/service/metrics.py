"""Metrics of one process: `GET /metrics`, and exports to a receiver of OTLP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from cadre.errors import CadreError
from cadre.service.health import HealthAnswer
from cadre.settings import MetricsSettings
from cadre.telemetry.metrics import names
from cadre.telemetry.metrics.meters import Meters, Sample
from cadre.tools.thread import run_in_thread

if TYPE_CHECKING:
    from cadre.adapters.otel_metrics import OtelForm
    from cadre.adapters.otlp import MetricSender

log = logging.getLogger("cadre.metrics")

READ_WITHIN = 5.0
"""Seconds for the figures that have to be asked for."""


class Measuring:
    """Reads the metrics of a process when they are asked for, and sends them at intervals.

    `read` returns the figures of the moment; those that cannot be read now are left out. To a receiver each of the
    `agents` that the process hosts is a service with the agent's name.
    """

    def __init__(
        self,
        settings: MetricsSettings,
        meters: Meters,
        service: str,
        instance: str,
        read: Callable[[], Awaitable[list[Sample]]],
        agents: Sequence[str] = (),
    ) -> None:
        self._settings = settings
        self._meters = meters
        self._service, self._instance, self._agents = service, instance, agents
        self._read = read
        self._form: OtelForm | None = None
        self._opening = asyncio.Lock()
        self._sender: MetricSender | None = None
        self._task: asyncio.Task[None] | None = None
        self._failures = 0
        self._failing = False

    async def start(self) -> None:
        """Begin to send them, if a receiver is configured."""
        if self._meters.on and self._settings.endpoint:
            try:
                self._sender = await run_in_thread(self._new_sender, "metrics")
                self._task = asyncio.create_task(self._send_now_and_then(), name="metrics")
            except ModuleNotFoundError as error:
                log.warning("metrics are not sent: %s", _missing(error))

    async def answer(self) -> HealthAnswer:
        """Return the answer to `GET /metrics`."""
        if not self._meters.on:
            return HealthAnswer(404, b"text/plain", b"CADRE_METRICS is off\n")
        try:
            form = await self._otel_form()
        except ModuleNotFoundError as error:
            return HealthAnswer(501, b"text/plain", f"{_missing(error)}\n".encode())
        from cadre.adapters.otel_metrics import CONTENT_TYPE

        return HealthAnswer(200, CONTENT_TYPE.encode(), form.text(await self._samples()))

    async def stop(self, within: float) -> None:
        """Send the last figures, as far as that can be done in so many seconds."""
        if self._task is None or self._sender is None:
            return
        self._task.cancel()
        try:
            async with asyncio.timeout(within):
                await self._send()
        except TimeoutError:
            log.warning("the last metrics were not sent: the receiver did not take them in time")
        self._sender.close()

    async def _otel_form(self) -> OtelForm:
        """Return the metrics in the form of OpenTelemetry. Raises ModuleNotFoundError."""
        async with self._opening:
            if self._form is None:
                # Importing takes a while on a busy machine: the event loop must not stand still for it.
                self._form = await run_in_thread(self._new_form, "metrics")
            return self._form

    def _new_form(self) -> OtelForm:
        from cadre.adapters.otel_metrics import OtelForm

        attributes = self._settings.attributes
        return OtelForm(self._meters, self._service, self._instance, attributes, self._agents)

    def _new_sender(self) -> MetricSender:
        from cadre.adapters.otlp import MetricSender

        return MetricSender(self._settings)

    async def _samples(self) -> list[Sample]:
        own = [Sample(names.EXPORT_FAILURES, self._failures)] if self._sender is not None else []
        try:
            async with asyncio.timeout(READ_WITHIN):
                return own + await self._read()
        except (CadreError, TimeoutError) as error:
            log.warning("some metrics cannot be read: %s", str(error) or "no answer in time")
            return own

    async def _send_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self._settings.interval)
            await self._send()

    async def _send(self) -> None:
        assert self._sender is not None
        form = await self._otel_form()
        trouble = await self._sender.send(form.data(await self._samples()))
        if trouble is not None:
            self._failures += 1
            if not self._failing:
                log.warning("the receiver of metrics has a problem (%s): trying again", trouble)
        elif self._failing:
            log.info("the receiver of metrics answers again")
        self._failing = trouble is not None


def _missing(error: ModuleNotFoundError) -> str:
    return f"the Python module {error.name!r} is not installed: install 'cadre-agents[metrics]'"
