"""What lasts from block to block in a jailed interpreter."""

import sys
import types

from cadre_sandbox.jail import snapshot
from cadre_sandbox.jail.builtins_for_code import Builtins
from cadre_sandbox.jail.capture import CapturedOutput
from cadre_sandbox.jail.channel import Channel
from cadre_sandbox.jail.stopwatch import Stopwatch


class InterpreterState:
    """The variables of the code, and what the interpreter itself keeps beside them."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.printed = CapturedOutput()
        self.stopwatch = Stopwatch()
        self.builtins = Builtins()
        self.snapshots = snapshot.Snapshots(self.builtins.imported)
        self.reserve = b""
        """Memory that is let go when all of it is taken, so that this can be said."""

        self.last_digest = b""
        """Digest of the snapshot that was sent last."""

        # Its name makes picklers take the code's classes by value.
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        self.namespace = vars(module)
        self.namespace["__builtins__"] = self.builtins.names
        snapshot.use_namespace(self.namespace)
