"""The gateway's background work for schedules, next to all requests."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from cadre.adapters.addresses import read_networks
from cadre.adapters.nats.automations import NatsAlarms, NatsDefinitions, NatsDeliveries
from cadre.adapters.nats.queues.queue import Queue
from cadre.adapters.nats.reading.history import History
from cadre.adapters.webhooks import WebhookSender
from cadre.automation.notice import PUSHES, NoticeState, TaskPushes
from cadre.automation.schedule_state import ScheduleState
from cadre.automation.trigger import TriggerState
from cadre.service.platform import Platform
from cadre_gateway.automation.editors import BudgetEditor, ScheduleEditor
from cadre_gateway.automation.evaluator import Evaluator
from cadre_gateway.automation.notices import NoticeQueues, Notices, PushNotifications
from cadre_gateway.automation.queues import Trials, start_due_queue, start_event_queue
from cadre_gateway.automation.scheduler import RunStarter, Scheduler
from cadre_gateway.automation.trigger_intake import TriggerIntake
from cadre_gateway.starting.admission import StandingBudgets


@dataclass(eq=False)
class Automation:
    """Handles what is due, until it is drained."""

    platform: Platform
    scheduler: Scheduler
    schedules: ScheduleEditor
    triggers: TriggerIntake
    notices: Notices
    notice_queues: NoticeQueues
    budgets: BudgetEditor
    pushes: PushNotifications
    evaluator: Evaluator
    trials: Trials
    _queues: list[Queue] = field(default_factory=list)

    async def run(self) -> None:
        """Work until cancelled. Raises SetupError."""
        self._queues.append(await start_due_queue(self.platform, self.scheduler, self.trials))
        self._queues.append(await start_event_queue(self.platform, self.triggers, self.trials))
        await asyncio.gather(self.scheduler.look_after(), self.notice_queues.run(), self.budgets.look_after())

    async def drain(self, grace: float) -> None:
        """End the work in progress within `grace` seconds and hand back the rest."""
        for queue in self._queues:
            await queue.drain(grace)
        await self.notice_queues.drain(grace)
        await self.evaluator.close()


def automation_of(
    platform: Platform,
    runs: RunStarter,
    history: History,
    budgets: StandingBudgets,
    secret: Callable[[str], str],
) -> Automation:
    """Return the parts put together; `secret` finds that of a name."""
    clock = platform.clock
    states = NatsDefinitions(platform.nc, platform.topology, "schedule", ScheduleState)
    alarms = NatsAlarms(platform.nc, platform.topology)
    evaluator, trials = Evaluator(), Trials(platform)
    scheduler = Scheduler(states, alarms, runs, clock, evaluator)
    triggers = NatsDefinitions(platform.nc, platform.topology, "trigger", TriggerState)
    kept = NatsDefinitions(platform.nc, platform.topology, "notice", NoticeState)
    deliveries = NatsDeliveries(platform.nc, platform.topology)
    sender = WebhookSender(read_networks("CADRE_NOTICE_PRIVATE", platform.settings.notice_private))
    source = f"urn:cadre:{platform.settings.prefix}"
    tasks = NatsDefinitions(platform.nc, platform.topology, PUSHES, TaskPushes)
    pushes = PushNotifications(tasks, deliveries, sender, clock, runs.makers)
    notices = Notices(kept, deliveries, history, sender, source, clock, secret, pushes, runs.makers)
    queues = NoticeQueues(platform, notices, trials)
    pushes.follow = queues.follow_now
    return Automation(
        platform,
        scheduler,
        ScheduleEditor(states, alarms, scheduler, runs, clock),
        TriggerIntake(triggers, runs, clock, secret, evaluator, platform.topology.events_prefix),
        notices,
        queues,
        BudgetEditor(budgets.states, budgets, notices),
        pushes,
        evaluator,
        trials,
    )
