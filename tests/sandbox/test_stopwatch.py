"""The stopwatch within a jail: once the work is over, no exception of a limit comes any more."""

import subprocess
import sys

LATE = """
from cadre_sandbox.jail import state
state._REPEAT_SECONDS, state._MIN_GAP_SECONDS = 0.00002, 0.0  # as where a process seldom gets the processor
watch = state.Stopwatch()
watch.install()

def spin():
    while True:
        pass

for _ in range(300):
    watch.reset(0.0003, 60.0)
    try:
        watch.timed(spin)
    except state.TimeLimit:
        pass
    for _ in range(100):
        len("an exception here ends the interpreter")
print("done")
"""


def test_the_time_rests_when_the_work_is_over() -> None:
    ran = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, check=False)
    assert ran.stdout == "done\n", ran.stderr
