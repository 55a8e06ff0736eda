"""Messages are decoded in several threads at once from the first one on."""

import subprocess
import sys

FIRST_MESSAGES = """
import sys
from threading import Thread
from cadre.delivery.codec import decode
from cadre.journal.arrivals import AnyRecord
from cadre.journal.entry import Entry
from cadre.protocol.messages import Spilled

sys.setswitchinterval(1e-6)
place = b'"v":1,"id":"c","tree":"r","run":"r","at":1.0'
entry = b'{"type":"entry",%s,"n":1,"cause":"c","agent":"a","arrived":{"type":"Task"},"events":[]}' % place
cancel = b'{"type":"cancel",%s}' % place
first = [lambda: decode(entry, Entry | Spilled), lambda: decode(entry, Entry)]
first.append(lambda: decode(cancel, AnyRecord | Spilled))
threads = [Thread(target=one) for one in first * 2]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_the_first_messages_may_come_in_several_threads() -> None:
    """msgspec reads a class at its first use; a thread that met one half read ended the process with SIGSEGV."""
    fresh = [
        subprocess.Popen([sys.executable, "-c", FIRST_MESSAGES], stderr=subprocess.PIPE) for _ in range(4)
    ]
    ends = [(process.communicate()[1].decode(), process.returncode) for process in fresh]
    assert ends == [("", 0)] * 4
