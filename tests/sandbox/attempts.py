"""The attempts of attempts.txt as code to run."""

from dataclasses import dataclass

from cadre_sandbox.interpreters.contract import Tier
from sandbox import sections

# The outcome of the attempt is the value of the last expression, as one text.
PRELUDE = """
import ctypes, errno, mmap, os, signal, socket, struct, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    result = libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
def attempt():
    {body}
try:
    outcome = "got " + repr(attempt())
except BaseException as error:
    name = errno.errorcode.get(getattr(error, "errno", None) or 0, "")
    outcome = f"{type(error).__name__} {name} {error}"
outcome[:2000]
"""


@dataclass(frozen=True)
class Attempt:
    name: str
    body: str
    expected: tuple[str, ...]

    def outcome(self, tier: Tier) -> str:
        """The regular expression that the outcome must match in this tier."""
        for line in self.expected:
            of, colon, pattern = line.partition(": ")
            if colon and of in ("ns", "landlock"):
                if of == tier:
                    return pattern
            else:
                return line
        raise AssertionError(f"{self.name}: nothing expected in tier {tier}")

    def code(self, names: dict[str, object]) -> str:
        body = self.body
        for name, value in names.items():
            body = body.replace("{" + name + "}", str(value))
        return PRELUDE.replace("{body}", body.replace("\n", "\n    "))


ALL = [Attempt(section.name, section.code, section.expected) for section in sections.read("attempts.txt")]
