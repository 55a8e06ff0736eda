"""The table of clients says what the suite has seen of the versions that it asks for now."""

import json

from clients.versions import SEEN, pinned


def test_the_suite_has_seen_the_clients_that_it_asks_for() -> None:
    seen = {one["package"]: one["version"] for one in json.loads(SEEN.read_text())}
    assert seen == pinned()
