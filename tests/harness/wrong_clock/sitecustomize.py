"""Python loads this when it starts, where this folder is on its path: the clock of the process is off by CLOCK_OFF
seconds, as if its machine's were."""

import os
import time

_right, _off = time.time, float(os.environ.get("CLOCK_OFF", "0"))

if _off:
    time.time = lambda: _right() + _off
