"""That every container has the key of its NATS user and no other, and that this key opens nothing of others."""

import json
from collections.abc import Iterable
from typing import Any

from containers.engine import Compose

KEYS = """
import json, os
found = {}
for folder, folders, files in os.walk("/"):
    folders[:] = [f for f in folders if os.path.join(folder, f) not in ("/proc", "/sys", "/dev", "/opt/cadre")]
    for name in files:
        path = os.path.join(folder, name)
        try:
            text = open(path).read(300)
        except (OSError, UnicodeDecodeError):
            continue
        if "# user: " in text:
            found[path] = [text.partition("# user: ")[2].split()[0], os.access(path, os.W_OK)]
print(json.dumps(found))
"""

TRESPASS = """
import asyncio, json, sys
import nats
from cadre.adapters.nats.connection.connect import settled
from cadre.adapters.nats.connection.keys import read_key
from cadre.protocol.nats_users import inbox_of
from cadre.settings import read_settings
from pathlib import Path

async def tried(nc, refusals, act, subject):
    # The server answers a ping after whatever it said before: a refusal is there by then, or never.
    await act(subject)
    await settled(nc)
    said, refusals[:] = [r for r in refusals if f'"{subject.lower()}"' in r], []
    return bool(said)

async def main(subjects):
    settings = read_settings()
    key = read_key(Path(settings.nats_credentials))
    refusals = []
    async def note(error):
        refusals.append(str(error).lower())
    nc = await nats.connect(settings.nats_url, nkeys_seed_str=key.seed, error_cb=note,
        inbox_prefix=inbox_of(key.user).encode())
    acts = {"publish": lambda s: nc.publish(s, b'{"batch":1,"no_wait":true}', reply=nc.new_inbox()),
        "listen": nc.subscribe}
    found = [await tried(nc, refusals, acts[act], subject) for act, subject in subjects]
    await nc.close()
    try:
        await nats.connect(settings.nats_url, allow_reconnect=False, error_cb=note, max_reconnect_attempts=0)
    except Exception as error:
        found.append("authorization" in str(error).lower() + " ".join(refusals))
    print(json.dumps(found))

asyncio.run(main(json.loads(SUBJECTS)))
"""

FORBIDDEN = [
    ("publish", "$JS.API.CONSUMER.MSG.NEXT.CADRE-0.agent-manager"),
    ("publish", "$JS.API.CONSUMER.CREATE.CADRE-0.mine"),
    ("publish", "$JS.API.STREAM.DELETE.CADRE-0"),
    ("publish", "cadre.in.0.manager.gateway.tree.run"),
    ("listen", "cadre.in.0.manager.>"),
    ("listen", "_INBOX_gateway.>"),
    ("listen", ">"),
]
"""To a member of the team that is not the manager."""

ALLOWED = [
    ("publish", "$JS.API.CONSUMER.MSG.NEXT.CADRE-0.agent-researcher"),
    ("listen", "_INBOX_agent-researcher.mine"),
]


def check_keys(compose: Compose, services: Iterable[str]) -> int:
    """Raises AssertionError; how many containers have a key."""
    own = {name: user for name, user in users(compose).items() if name in services}
    for service in sorted(own):
        found = compose.inside(service, KEYS)
        assert found == {"/run/cadre/nats.nk": [own[service], False]}, (service, found)
    return len(own)


def check_trespass(compose: Compose) -> None:
    """Of the researcher's container. Raises AssertionError."""
    assert "Violation" not in compose("logs", "nats"), "a service tried what its user may not do"
    tries = [*FORBIDDEN, *ALLOWED]
    found = compose.inside("researcher", f"SUBJECTS = {json.dumps(json.dumps(tries))}\n{TRESPASS}")
    assert found == [*(True for _ in FORBIDDEN), *(False for _ in ALLOWED), True], list(zip(tries, found, strict=False))
    said = compose("logs", "nats").count("Violation")
    assert said == len(FORBIDDEN), f"the server's log has {said} of {len(FORBIDDEN)} violations"


def users(compose: Compose) -> dict[str, str]:
    """By service that runs on, as the volumes of the compose file have it."""
    services: dict[str, Any] = json.loads(compose("config", "--format", "json"))["services"]
    return {
        name: volume["source"].removeprefix("key-")
        for name, service in services.items()
        for volume in service.get("volumes", [])
        if volume["target"] == "/run/cadre" and name != "provision"
    }
