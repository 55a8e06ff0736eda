"""Threads that are the first of a process to use a type of the journal: each whole answer, and no death.

msgspec reads a class at its first use, and a thread that meets a class which another one has read by half ends the
process with SIGSEGV.
"""

import subprocess
import sys

import pytest

THREADS, PROCESSES = 8, 4

TOGETHER = f"""
import sys
from threading import Barrier, Thread

sys.setswitchinterval(1e-6)
PLACE = b'"v":1,"id":"c","tree":"r","run":"r","at":1.0'
ENTRY = b'{{"type":"entry",%s,"n":1,"cause":"c","agent":"a","arrived":{{"type":"Task"}},"events":[]}}' % PLACE
CANCEL = b'{{"type":"cancel",%s}}' % PLACE
SPEC = b'{{"name":"a","description":"b","sections":[{{"kind":"goals","goals":["c"]}}]}}'

def together(*works):
    barrier, ends = Barrier({THREADS}), []

    def at_once(work):
        barrier.wait()
        work()
        ends.append(work)

    threads = [Thread(target=at_once, args=(works[n % len(works)],)) for n in range({THREADS})]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ends) == {THREADS}
"""

FIRST_USES = {
    "entries and records": """
from cadre.delivery.codec import decode, decode_record
from cadre.journal.entry import Entry
from cadre.protocol.messages import Spilled

together(
    lambda: decode(ENTRY, Entry),
    lambda: decode(ENTRY, Entry | Spilled),
    lambda: decode_record(CANCEL),
)
""",
    "other messages": """
from cadre.delivery.codec import decode
from cadre.protocol.messages import Cancel, Record, Spilled

together(*(lambda kind=kind: decode(CANCEL, kind) for kind in (Record, Cancel, Record | Spilled)))
""",
    "agents": """
from cadre import Agent
from cadre.spec.agent import decode_spec
from cadre.spec.agent_file import agent_of

document = {"apiVersion": "cadre.dev/v1", "kind": "Agent", "metadata": {"name": "a"}, "spec": {"description": "b"}}
together(
    lambda: Agent(name="a", description="b"),
    lambda: decode_spec(SPEC),
    lambda: agent_of(document, None),
)
""",
    "whatever comes first": """
from cadre import Agent
from cadre.client import Event
from cadre.delivery.codec import decode
from cadre.journal.entry import Entry
from cadre.journal.run import Step
from cadre.journal.unions import converted
from cadre.prompting.prompts import prompts_for

event = {"event": {"type": "step.finished", "step": 1}}
together(
    lambda: decode(ENTRY, Entry),
    lambda: prompts_for(Agent(name="a", description="b").spec),
    lambda: Event("step.finished", event).body.step,
    lambda: converted([], list[Step]),
)
""",
}


@pytest.mark.parametrize("first", FIRST_USES)
def test_the_first_uses_may_come_in_several_threads(first: str) -> None:
    code = TOGETHER + FIRST_USES[first]
    fresh = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) for _ in range(PROCESSES)]
    ends = [(process.communicate()[1].decode(), process.returncode) for process in fresh]
    assert ends == [("", 0)] * PROCESSES
