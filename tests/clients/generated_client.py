"""Calls the gateway by a client that openapi-python-client has made: its URL, a key, a call that waits; prints as JSON
what it was sent."""

import json
import sys

from cadre_api import AuthenticatedClient, Client
from cadre_api.api.access import delete_key, get_session, get_sign_in, post_key
from cadre_api.api.approvals import get_approvals, post_approval
from cadre_api.api.directory import get_agents, get_tools
from cadre_api.api.runs import get_run, get_runs, post_run
from cadre_api.api.schedules import delete_schedule, get_schedule, put_schedule
from cadre_api.models import (
    KeyBody,
    KeyBodyRolesItem,
    RulingBody,
    RulingBodyVerdict,
    ScheduleSpec,
    Submission,
)


def main(url: str, key: str, call: str) -> dict[str, object]:
    client = AuthenticatedClient(base_url=url, token=key, timeout=60)
    ways = get_sign_in.sync(client=Client(base_url=url, timeout=60))
    refused = get_session.sync_detailed(client=Client(base_url=url, timeout=60))
    session = get_session.sync(client=client)
    made = post_key.sync(client=client, body=KeyBody(name="a reader", roles=[KeyBodyRolesItem.VIEWER]))
    revoked = delete_key.sync(made.id, client=client)
    agents = get_agents.sync(client=client)
    tools = get_tools.sync(client=client)
    asked = get_approvals.sync(client=client)
    decided = post_approval.sync(
        call, client=client, body=RulingBody(verdict=RulingBodyVerdict.REJECTED, feedback="No.")
    )
    ended = post_run.sync(client=client, prefer="wait=60", body=Submission(agent="host", task="Hi"))
    run = get_run.sync(ended.id, client=client)
    runs = get_runs.sync(client=client, agent="host", limit=5)
    body = ScheduleSpec(name="nightly", agent="host", task="Hi", cron="0 3 * * *", paused=True)
    put_schedule.sync("nightly", client=client, body=body)
    schedule = get_schedule.sync("nightly", client=client)
    gone = delete_schedule.sync_detailed("nightly", client=client)
    unknown = get_run.sync("0" * 32, client=client)
    return {
        "keys": ways.keys,
        "refused": [refused.status_code, refused.parsed.code],
        "name": session.name,
        "revoked": revoked.id == made.id,
        "agents": sorted(agent.name for agent in agents.agents),
        "tools": sorted(tool.name for tool in tools.tools),
        "asked": [one.call for one in asked.approvals],
        "verdict": decided.verdict,
        "output": ended.output,
        "state": run.state,
        "runs": [one.id for one in runs.runs] == [ended.id],
        "schedule": [schedule.name, schedule.paused],
        "gone": gone.status_code,
        "unknown": unknown.code,
    }


print(json.dumps(main(*sys.argv[1:])))
