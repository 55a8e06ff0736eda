"""Generate the files that `cadre new` writes, by their paths below the current folder."""

_AGENT = """\
apiVersion: cadre.dev/v1
kind: Agent
metadata: {{name: {name}}}
spec:
  description: {description}
  instructions: |
    Answer briefly.
{more}"""

_TOOL = '''\
"""A tool: `cadre tools` serves it to every agent that names it."""

from cadre import tool


@tool(read_only=True)
def {name}(text: str) -> int:
    """Count the words of a text.

    Args:
        text: The text.
    """
    return len(text.split())
'''

_TEAM = """\
apiVersion: cadre.dev/v1
kind: Team
metadata: {{name: {name}}}
spec:
  agents: [lead.yaml, helper.yaml]
  tools: [tools.py]
  script: script.yaml   # canned replies, for as long as CADRE_MODEL_URL is not set
  demo: {{agent: lead, task: How many words has this sentence?}}
"""

_SCRIPT = """\
# Answers of the scripted model, the first rule that matches; where none does it calls every tool once, then answers.
rules: []
"""

_TEST = '''\
"""A test without a model, a server or a network: docs/testing.md."""

import asyncio
from pathlib import Path

from cadre.testing import Team, answer{imports}

HERE = Path(__file__).parent


def test_{function}() -> None:
    async def play() -> None:
{body}
    asyncio.run(play())
'''

_AGENT_PLAY = """\
        async with Team([HERE / "{name}.yaml"], [], [answer("42")]) as team:
            assert await team.run("{name}", "What is the answer?") == "42"
"""

_TOOL_PLAY = """\
        asker = Agent(name="asker", description="Asks.", tools=["{name}"])
        script = [call("{name}", text="to be or not to be"), answer("six")]
        async with Team([asker], [HERE / "{name}.py"], script) as team:
            assert await team.run("asker", "How many words?") == "six"
            assert [one.output for one in team.calls] == [6]
"""

_TEAM_PLAY = """\
        models = {{
            "lead": [call("helper", task="Count the words of 'to be'."), answer("two")],
            "helper": [call("count_words", text="to be"), answer("2")],
        }}
        async with Team([HERE / "lead.yaml", HERE / "helper.yaml"], [HERE / "tools.py"], models) as team:
            assert await team.run("lead", "How many words has 'to be'?") == "two"
            assert [one.output for one in team.calls] == [2]
"""


def test_file(name: str) -> str:
    """Name of the file with the test of what is called `name`."""
    return f"test_{name.replace('-', '_')}.py"


def agent_files(name: str) -> dict[str, str]:
    """An agent and its test."""
    return {
        f"{name}.yaml": _AGENT.format(name=name, description="Answers questions.", more=""),
        test_file(name): _test(name, _AGENT_PLAY),
    }


def tool_files(name: str) -> dict[str, str]:
    """A tool and its test."""
    test = _test(name, _TOOL_PLAY, ", call").replace(
        "from cadre.testing", "from cadre import Agent\nfrom cadre.testing"
    )
    return {f"{name}.py": _TOOL.format(name=name), test_file(name): test}


def team_files(name: str) -> dict[str, str]:
    """A folder with a manager, its member, the member's tool, and their test."""
    lead = _AGENT.format(name="lead", description="Leads the team.", more="  team: [helper]\n")
    helper = _AGENT.format(name="helper", description="Counts words.", more="  tools: [count_words]\n")
    files = {
        "team.yaml": _TEAM.format(name=name),
        "lead.yaml": lead,
        "helper.yaml": helper,
        "tools.py": _TOOL.format(name="count_words"),
        "script.yaml": _SCRIPT,
        test_file(name): _test(name, _TEAM_PLAY, ", call"),
    }
    return {f"{name}/{file}": text for file, text in files.items()}


def _test(name: str, body: str, imports: str = "") -> str:
    return _TEST.format(function=name.replace("-", "_"), imports=imports, body=body.format(name=name))
