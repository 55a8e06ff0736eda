"""One seed: the world that it makes, played until it comes to rest, and judged."""

import functools
import gc
import logging
import random
from typing import NamedTuple

from cadre.delivery import code_history
from cadre.journal import entry
from cadre.journal.arrivals import Toolset
from cadre.protocol.topology import Topology
from cadre.runtime import run_cache
from simulation.consumer import Consumer, Subscriber
from simulation.faults import Faults
from simulation.history import History, Violation
from simulation.invariants import AT_THE_END, nothing_is_let_go_too_early, somebody_will_wake_it
from simulation.loop import Loop, Process, Stuck, current_process
from simulation.memory import Recollections
from simulation.outside import Person, begin_outside
from simulation.peers import Asked
from simulation.scenario import Scenario
from simulation.server import WINDOWS, Message, Server
from simulation.steering import draw_words
from simulation.tools import Shelf
from simulation.trace import Trace
from simulation.warm import Places
from simulation.wire import Ways
from simulation.workers import Live, Parts, Worker, start_agent, start_executor, start_memory, start_sandbox

LOOK_EVERY = 61
"""Steps of workers between two looks at what will wake whom."""

LAST_EVENTS = 60


class Outcome(NamedTuple):
    """The outcome of a seed; `failure` is the broken promise, None when all held."""

    seed: int
    failure: str | None
    promise: str | None
    counts: dict[str, int]


class World:
    """Everything of one seed, and loop.Overseer of its steps."""

    def __init__(self, seed: int, parts: Parts) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.parts = parts
        self.scenario = Scenario(self.chance, random.Random(f"more {seed}"))
        self.words = draw_words(random.Random(f"words {seed}"), self.scenario.orders)
        self.loop = Loop(self.chance)
        self.trace = Trace(self.loop.time)
        self.faults = Faults(self.chance, self.trace)
        self.topology = Topology(self.scenario.shards)
        self.history = History(self.topology, self.trace)
        self.server = Server(self.loop, self.chance, self.trace, self.history)
        self.server.open(self.scenario.shards)
        self.server.post = self._post
        self.ways = Ways(self.loop, self.chance, self.faults, self.server)
        self.ways.kill = lambda process: self.workers[process].crash("crash")
        self.recollections = Recollections(list(self.scenario.specs) if self.scenario.memories else [])
        self.outgrown: list[str] = []
        """Requests that were larger than their model's context."""
        self.blobs: dict[str, bytes] = {}
        self.shelf = Shelf(self.die)
        self.person = Person(self)
        self.places = Places()
        self.asked = Asked()
        self.workers: dict[Process, Worker] = {}
        self.deadly: set[str] = set()
        """Calls and tasks whose handling no process survives, or that fail it every time."""
        self._places: list[Worker] = []
        self._until_look = LOOK_EVERY

    def play(self) -> None:
        """Plays until nothing will ever happen again. Raises Violation, Stuck, and anything that a handler raised."""
        for name in self.scenario.specs:
            for number in range(self.scenario.replicas[name]):
                start = functools.partial(_start_agent, self, name, number)
                self._places.append(Worker(self, f"{name}-{number}", start))
        for number in range(self.scenario.executors):
            self._places.append(Worker(self, f"tools-{number}", functools.partial(start_executor, self)))
        for number in range(self.scenario.sandboxes):
            self._places.append(Worker(self, f"sandbox-{number}", functools.partial(start_sandbox, self)))
        for number in range(self.scenario.memories):
            self._places.append(Worker(self, f"memory-{number}", functools.partial(start_memory, self)))
        for place in self._places:
            self.loop.at(0.0, place.begin)
        begin_outside(self)
        pauses = random.Random(f"pauses {self.seed}")
        for _ in range(pauses.choice((0, 0, 1, 3))):
            self.loop.at(pauses.uniform(0.0, 30.0), self.server.pause, pauses.uniform(2.0, 6.0))
        if pauses.random() < 0.1:
            self.ways.least = pauses.uniform(1.0, 1.5)
            # Most messages are redelivered there. With no window for duplicates, each copy would make more than one.
            self.server.window = WINDOWS[-1]
            self.trace.note("far-away")
        self.history.on_settled = functools.partial(nothing_is_let_go_too_early, self)
        self.loop.run(self)
        if self.loop.complaints:
            raise Violation("no task is left with an error", self.loop.complaints[0])
        for check in AT_THE_END:
            check(self)

    def toolset(self, agent: str) -> Toolset:
        """Return what the agent's model may call at this moment."""
        toolset = self.scenario.offers[agent]
        if not self.faults.happens("missing"):
            return toolset
        gone = self.chance.choice([*toolset.tools, *toolset.members])
        return Toolset(
            tools={name: card for name, card in toolset.tools.items() if name != gone},
            members={name: card for name, card in toolset.members.items() if name != gone},
            missing=[gone],
        )

    # --- loop.Overseer

    def before_step(self, process: Process) -> None:
        self._until_look -= 1
        if not self._until_look:
            self._until_look = LOOK_EVERY
            somebody_will_wake_it(self)
        what = self.faults.before_step()
        if what is None:
            return
        worker = self.workers[process]
        match what:
            case "crash":
                worker.crash("crash")
            case "stop":
                worker.stop()
            case "cut":
                worker.cut()
            case "drain":
                worker.drain()
            case "restart-server":
                self.server.restart()

    def die(self, of: str) -> None:
        """Kills the process that calls it; `of` names the call, or the task of the run, that did it."""
        self.kill(current_process(), of)

    def kill(self, process: Process, of: str) -> None:
        """The same to a process that runs what has no step."""
        if process.alive:
            self.deadly.add(of)
            self.workers[process].crash("killed")

    # --- on the way from the server

    def interrupt_all(self, run: str) -> None:
        for place in self._places:
            live = place.live
            if not self.faults.happens("lost-interrupt"):
                self.loop.at(self.ways.latency(), self._interrupt, live.process, live.interrupt, run)

    def _interrupt(self, process: Process, interrupt: object, run: str) -> None:
        if process.alive and not process.cut:
            assert callable(interrupt)
            self.loop.call_soon(interrupt, run, context=process.context)

    def _post(self, consumer: Consumer, to: Subscriber, message: Message, count: int) -> None:
        lost = to.process.cut or self.faults.happens("lost-delivery")
        self.trace.note("deliver", message.seq, to.process.name, count, "lost" if lost else "")
        if count > 1:
            self.trace.counts["redelivered"] += 1
        if lost:
            self.loop.at(5.0, _lost, to)
            return
        if self.faults.happens("early-expiry"):
            consumer.hasten(message.seq)
        self.loop.at(self.ways.latency(), self._arrive, to, message, count)

    def _arrive(self, to: Subscriber, message: Message, count: int) -> None:
        if to.process.cut:
            self.loop.at(5.0, _lost, to)
        elif to.process.alive:
            self.loop.call_soon(to.arrive, message, count, context=to.process.context)


def _start_agent(world: World, name: str, number: int, process: Process) -> Live:
    return start_agent(world, process, name, number)


def _lost(subscriber: Subscriber) -> None:
    if subscriber.process.alive:
        subscriber.lost()


def play(seed: int, parts: Parts | None = None) -> tuple[Outcome, World]:
    """Plays a seed and judges it. The same seed takes the same steps, in any process."""
    before = (
        entry.FAN,
        run_cache.MOST_RUNS,
        code_history.PIECE_EXCHANGES,
    )
    parts = parts or Parts()
    world = World(seed, parts)
    # Small blocks, so that the few entries of a simulated run have several levels of back-pointers.
    entry.FAN, run_cache.MOST_RUNS = parts.fan or world.scenario.fan, world.scenario.most_runs
    code_history.PIECE_EXCHANGES = world.scenario.piece_exchanges
    collects, logs = gc.isenabled(), logging.root.manager.disable
    gc.disable()
    logging.disable()
    failure: str | None = None
    promise: str | None = None
    try:
        world.play()
    except Violation as broken:
        failure, promise = str(broken), broken.promise
    except Stuck as stuck:
        failure, promise = f"every run reaches an end: {stuck}", "every run reaches an end"
    except Exception as error:
        # Anything that production code lets escape is what the seed has found.
        failure, promise = f"no handler fails: {type(error).__name__}: {error}", "no handler fails"
        world.trace.note("error", repr(error))
    finally:
        (
            entry.FAN,
            run_cache.MOST_RUNS,
            code_history.PIECE_EXCHANGES,
        ) = before
        counts = dict(world.trace.counts)
        world.faults.left = 0
        world.loop.bury(*world.workers)
        logging.disable(logs)
        if collects:
            gc.enable()
    counts["runs"] = sum(bool(chronicle.entries) for chronicle in world.history.runs.values())
    counts["steps"] = world.loop.steps
    return Outcome(seed, failure, promise, counts), world
