"""The command group `cadre`: finds a verb's module by name and imports nothing else."""

import copy
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from cadre.errors import ExitCode, SettingError

VERBS_OF_ROOMS = {
    "team": {
        "up": "Start NATS and all services of a team on this machine.",
        "new": "Write an agent, a tool or a team that runs, with a test.",
        "check": "Check a team's files without starting anything.",
        "ps": "List agents, tools and sandboxes: live, away, at rest.",
        "logs": "Show what the services of `cadre up` logged.",
        "graph": "Print what an agent's file says as a Mermaid diagram.",
        "model": "Ask a model what it can do.",
        "doctor": "Check this installation and say what to do.",
    },
    "runs": {
        "run": "Give an agent a task and follow the run.",
        "chat": "Chat with an agent, turn by turn, in a session.",
        "runs": "List runs, newest first.",
        "show": "Show one run: its state, tree, answer.",
        "trace": "Show where the time and the tokens of a run went.",
        "files": "List, download or upload the files of a run.",
        "tell": "Send a message to a run in progress.",
        "signal": "Send a run a signal that it waits for.",
        "queue": "Show the tasks that a run has queued, and edit them.",
        "plan": "Show or edit the plan of a run.",
        "cancel": "Cancel a run and everything below it.",
        "fork": "Start a new run from a step of another.",
        "resume": "Resume a run that ended without an answer.",
        "approvals": "List the calls that wait for approval.",
        "approve": "Approve a held call.",
        "reject": "Reject a held call.",
        "correct": "Change a held call and let it be made.",
    },
    "checks": {
        "replay": "Decide a run's journal again and report what differs.",
        "verify": "Check that a run's journal is unchanged.",
        "test": "Replay exported runs against the current team files.",
        "policy": "Show shipped policies, and try one on past runs.",
        "eval": "Run the tasks of exported runs again and compare.",
    },
    "automation": {
        "schedule": "Start runs by the clock: list, add, pause, run, remove.",
        "trigger": "Start runs by messages and webhooks: list, add, remove.",
        "budget": "Limit what users, agents and teams use per period: list, add, remove.",
        "notice": "Send notices of runs to web addresses: list, add, remove.",
    },
    "deployment": {
        "provision": "Create a team's streams and consumers before its services start.",
        "shards": "List the streams that runs are spread over, and add to them.",
        "backup": "Save all streams of a deployment in a folder.",
        "restore": "Restore a deployment from a backup.",
        "auth": "Make a NATS user for every service, and the server's list of them.",
        "tenant": "Make, list and remove the tenants of a gateway.",
        "keys": "Make, list and revoke the API keys of people and programs.",
        "audit": "Show what was done at the gateway, and by whom.",
        "k8s": "Render a team as Kubernetes manifests.",
        "retire": "Take an agent, tool or pool out of the deployment.",
        "sweep": "Remove the queues that retired agents, tools and pools have left behind.",
        "rollout": "Share an agent's new runs between revisions, by weight.",
        "index": "Show the index of runs, or rebuild it.",
        "stats": "Show runs, calls, tokens and cost by agent, model, user, day.",
        "dead": "List, show, retry or drop messages that no service could handle.",
    },
}
"""The verbs of each room next to this module: each is `command` in the module of its name, except those of _MODULES."""

VERBS = {verb: text for verbs in VERBS_OF_ROOMS.values() for verb, text in verbs.items()}
"""A one-line description of each verb."""

_MODULES = {
    **{verb: f"approvals:{verb}" for verb in ("approve", "reject", "correct")},
    **{verb: f"steer:{name}" for verb, name in {"tell": "tell", "signal": "send_signal", "cancel": "cancel"}.items()},
    "resume": "fork:resume",
    "check": "up:check",
    "graph": "up:graph",
    "verify": "replay:verify",
    "test": "replay:test",
    "restore": "backup:restore_command",
    **{verb: f"definitions:{verb}" for verb in ("schedule", "trigger", "budget", "notice")},
    "queue": "edits:queue",
    "plan": "edits:plan",
    "audit": "keys:audit",
    "retire": "rollout:retire",
    "sweep": "rollout:sweep",
    "stats": "index:stats",
    "provision": "streams:provision",
    "shards": "streams:shards",
    "tenant": "auth:tenant",
}
"""The module, and the command in it, of each verb that has no module of its name, below its room."""

SERVICES = {
    "agent": "Serve one agent from its YAML file.",
    "tools": "Serve the tools of Python modules or files.",
    "member": "Serve an agent or program of another framework as a member.",
    "gateway": "Serve the HTTP API.",
    "memory": "Serve the agents' memory; search, list, show, forget and export it.",
    "sandbox": "Run the code that agents write, in a jail.",
    "tracer": "Export the traces of all runs to an OTLP receiver.",
    "operator": "Run the objects of a Kubernetes cluster: Agent, Team, ToolServer, …",
    "scripted-model": "Serve canned model answers from a script.",
}
"""Help of the shipped services, which are listed without being imported; others are listed by name alone."""

SERVICE_GROUP = "cadre.services"

_SUBCOMMANDS = {"memory": "cadre.cli.deployment.memory"}
"""The modules whose `COMMANDS` look, through the gateway, into what the service of that name keeps."""


def _log_as_service(name: str) -> None:
    """Have all that a service says be JSON from its first line, where its log is."""
    from cadre.settings import LogSettings, read

    try:
        settings = read(LogSettings, "CADRE_", log_level="INFO")  # a wrong one is reported by the service
    except SettingError:
        return  # the service itself says which is wrong
    if settings.log_format == "json":
        from cadre.telemetry.logs import configure_logging

        configure_logging(name, settings.instance_name(), settings.log_level, settings.log_format)


class Verbs(click.Group):
    """A group whose commands are imported when they are used, never to list them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the verbs and of the installed services."""
        return [*VERBS, *_services()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of that name, imported now; None if it does not exist."""
        room = next((room for room, verbs in VERBS_OF_ROOMS.items() if cmd_name in verbs), None)
        if room:
            module, _, attribute = _MODULES.get(cmd_name, f"{cmd_name}:command").partition(":")
            command: object = getattr(import_module(f"cadre.cli.{room}.{module}"), attribute)
        elif cmd_name in (services := _services()):
            _log_as_service(cmd_name)
            command = _load_service(cmd_name, services[cmd_name])
            from cadre.adapters import local_stack

            local_stack.find_nats()
        else:
            return None
        assert isinstance(command, click.Command), f"{cmd_name} is not a click command"
        if isinstance(command, click.Group) and cmd_name in _SUBCOMMANDS:
            for subcommand in import_module(_SUBCOMMANDS[cmd_name]).COMMANDS:
                command.add_command(subcommand)
        if isinstance(command, click.Group):
            _add_short_forms(command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections of commands of `cadre --help`: one per room, and the services."""
        services = _services()
        for room, verbs in VERBS_OF_ROOMS.items():
            with formatter.section(f"Commands: {room}"):
                formatter.write_dl(list(verbs.items()))
        if services:
            with formatter.section("Services, each one process"):
                formatter.write_dl([(name, SERVICES.get(name, "")) for name in services])

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, standalone_mode: bool = True, **extra: Any
    ) -> Any:
        """Run a command as click does, but an error is one line, and the integer that a command returns is the exit
        code.
        """
        if not standalone_mode:
            return super().main(args, standalone_mode=False, **extra)
        try:
            code = super().main(args, standalone_mode=False, **extra)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            code = ExitCode.USAGE
        except click.Abort:
            code = ExitCode.DETACHED
        except Exception as error:
            code = _report(error)
        sys.exit(code if isinstance(code, int) else ExitCode.OK)


def _add_short_forms(group: click.Group) -> None:
    """Take the words of a shell, `ls` and `rm`, for the group's commands `list` and `remove`."""
    for name, short in (("list", "ls"), ("remove", "rm")):
        if name in group.commands:
            group.commands[short] = copy.copy(group.commands[name])
            group.commands[short].hidden = True


def _report(error: Exception) -> int:
    """Print the error as one line on stderr, with CADRE_DEBUG its traceback as well; returns the exit code."""
    # Here, so that `--help` need not read settings.
    from cadre.cli.terminal.outcome import error_line
    from cadre.cli.terminal.output import print_text
    from cadre.settings import debugging

    message, code = error_line(error)
    if debugging():
        import traceback

        traceback.print_exception(error)
    print_text(f"cadre: {' '.join(message.split())}", err=True)
    return code


def _services() -> dict[str, Any]:
    from importlib.metadata import entry_points

    installed = {entry.name: entry for entry in entry_points(group=SERVICE_GROUP)}
    others = sorted(installed.keys() - SERVICES.keys())
    return {name: installed[name] for name in [*SERVICES, *others] if name in installed}


def _load_service(name: str, entry: Any) -> Any:
    try:
        return entry.load()
    except ModuleNotFoundError as error:
        if name not in SERVICES:
            raise click.ClickException(
                f"`cadre {name}` needs the Python module {error.name!r}, which is not installed:"
                f" install what {entry.value!r} needs"
            ) from error
        from cadre.service.extras import missing_package

        raise missing_package(name, error) from error


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(
    package_name="cadre-agents", prog_name="cadre", message="%(prog)s %(version)s", help="Show the version."
)
@click.option("--key", help="API key for the gateway; others on the machine can see it there [CADRE_API_KEY].")
@click.pass_context
def group(ctx: click.Context, key: str | None) -> None:
    """Teams of LLM agents as durable microservices over NATS."""
    from cadre.settings import colourless, use_gateway_key  # here, so that `--help` need not read settings

    if key:
        use_gateway_key(key)
    if colourless():
        ctx.color = False


def main(*words: str) -> None:
    """Run the executable `cadre`; `words` come before the arguments of the process."""
    group.main([*words, *sys.argv[1:]], prog_name="cadre")


if __name__ == "__main__":
    main()
