"""The packages that an installation lacks for its services, and the command that installs them."""

from collections.abc import Iterable
from importlib.util import find_spec

from cadre.errors import CommandFailed, ExitCode

_EXTRA_OF = {"tracer": "tracing"}
"""The extra that installs a service's packages, where it is not named like the service."""

_MODULES = {
    "gateway": ("fastapi",),
    "mcp": ("mcp",),
    "memory": ("numpy", "qdrant_client", "semantic_text_splitter"),
    "operator": ("kopf",),
    "sandbox": ("cloudpickle",),
    "scripted-model": ("starlette",),
    "tracer": ("opentelemetry.exporter.otlp.proto.http",),
}
"""The modules that each service, and `cadre tools --mcp`, imports beyond the packages that every installation has."""

OF_UP = ("gateway", "sandbox", "scripted-model")
"""Services whose packages the extra `up` installs."""


def missing_modules(service: str) -> list[str]:
    """Return the modules that the service imports and that are not installed; [] for a service that needs nothing
    more."""
    return [module for module in _MODULES.get(service, ()) if not _is_installed(module)]


def install_command(extras: Iterable[str]) -> str:
    """Return the command that installs the packages of these extras."""
    return f"pip install 'cadre-agents[{','.join(sorted({*extras}))}]'"


def check_extras(command: str, services: Iterable[str]) -> None:
    """Raise CommandFailed when packages of these services are missing, with the one command that installs all.

    Args:
        command: What cannot be run without them, such as `cadre up`.
    """
    lacking = {service: modules for service in services if (modules := missing_modules(service))}
    if lacking:
        extras = ["up" if command == "up" and name in OF_UP else _extra_of(name) for name in lacking]
        raise _missing_packages(command, extras, [m for modules in lacking.values() for m in modules])


def missing_package(service: str, error: ModuleNotFoundError) -> CommandFailed:
    """Return the error of a service that could not be imported: what is missing, and the command that installs it."""
    return _missing_packages(service, [_extra_of(service)], [str(error.name)])


def _missing_packages(command: str, extras: Iterable[str], modules: Iterable[str]) -> CommandFailed:
    names = ", ".join(dict.fromkeys(modules))
    return CommandFailed(
        f"`cadre {command}` needs Python packages that are not installed ({names}): {install_command(extras)}",
        ExitCode.USAGE,
    )


def _extra_of(service: str) -> str:
    return _EXTRA_OF.get(service, service)


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a package around it is missing
        return False
