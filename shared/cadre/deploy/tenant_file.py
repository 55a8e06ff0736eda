"""A tenant's YAML file (`kind: Tenant`): by which names the gateway serves it, and what holds there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from cadre.errors import SpecError
from cadre.spec.misfit import misfit_of
from cadre.spec.names import check_name
from cadre.spec.yaml_file import read_yaml

TENANT_FILE = "tenant.yaml"

_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


class TenantSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a tenant is; files beside it have its keys."""

    hosts: Annotated[list[str], Meta(min_length=1)]
    """The names by which people and programs reach it, in lower case and without a port. They are no other tenant's."""
    auth: Literal["keys", "oidc", "keys,oidc"] = "keys"
    """How people and programs say who they are."""
    key_rate: Annotated[float, Meta(ge=0.01)] = 100.0
    """Requests a second of a key that says none of its own."""
    keep_days: Annotated[float, Meta(ge=0)] | None = None
    """Days after its end at which a run is removed; as the process has it unless set."""
    storage_bytes: Annotated[int, Meta(ge=1)] | None = None
    """The most that its account may store; as much as there is unless set."""
    oidc: dict[str, Any] | None = None
    """Its provider: the settings `CADRE_OIDC_<FIELD>` by field in lower case. The secret lies in a file."""


class _Metadata(msgspec.Struct, forbid_unknown_fields=True):
    name: str


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    api_version: Literal["cadre.dev/v1"] = msgspec.field(name="apiVersion")
    kind: Literal["Tenant"]
    metadata: _Metadata
    spec: TenantSpec


def read_tenant(folder: Path) -> TenantSpec:
    """The tenant of a folder, which has its name. Raises SpecError with the file, the key and what is expected."""
    file = folder / TENANT_FILE
    data = read_yaml(file, SpecError)
    try:
        check_name("tenant", folder.name)
        document = msgspec.convert(data, _Document)
        if document.metadata.name != folder.name:
            raise SpecError(f"must be the folder's name, {folder.name!r}", key="metadata.name")
        for host in document.spec.hosts:
            if not _HOST.fullmatch(host):
                raise SpecError(
                    f"{host!r} is no host name: write it in lower case and without a port", key="spec.hosts"
                )
        if (document.spec.oidc is not None) != ("oidc" in document.spec.auth):
            raise SpecError("belongs with `oidc` in spec.auth, and that with it", key="spec.oidc")
    except msgspec.ValidationError as error:
        misfit = misfit_of(error)
        raise SpecError(misfit.problem, key=misfit.place, files=(file,)) from error
    except SpecError as error:
        error.in_file(file)
        raise
    return document.spec


def tenant_document(name: str, hosts: list[str], storage_bytes: int | None) -> dict[str, Any]:
    """The document of a new tenant."""
    spec: dict[str, Any] = {"hosts": hosts, "auth": "keys"}
    if storage_bytes is not None:
        spec["storage_bytes"] = storage_bytes
    return {"apiVersion": "cadre.dev/v1", "kind": "Tenant", "metadata": {"name": name}, "spec": spec}
