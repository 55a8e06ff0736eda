"""Stopping a process of our own, as if its machine stood still."""

import os
import signal


def stand_still(pid: int) -> None:
    """SIGSTOP; returns once it has taken effect: what the child is told from then on gets no answer."""
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
