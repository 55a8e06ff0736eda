"""Starts a command that the kernel kills when the process that started it is gone.

Run as a file: `python -I die_with_parent.py PARENT-PID COMMAND…`. It becomes the command: ids and pipes
stay the same. Linux only; elsewhere the command is started without the tie.
"""

import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie this process to its parent, then become the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            sys.exit(f"cadre: prctl failed: {os.strerror(ctypes.get_errno())}")
        # The parent may have died before the call above.
        if os.getppid() != parent:
            sys.exit(1)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
