"""Where the tenants of a gateway are."""

from pathlib import Path

import msgspec

from cadre.deploy.tenant_file import TENANT_FILE
from cadre.errors import SettingError
from cadre.settings import AccessSettings, read, read_access_settings


class TenantsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the tenants of a gateway are: `CADRE_<FIELD>`."""

    tenants: str = ""
    """The folder that `cadre tenant` makes; "" for a gateway of one deployment."""


def read_tenants_folder(given: Path | None, *, asked: bool) -> Path | None:
    """The folder of tenants: the one given, else that of the environment; None for a gateway of one deployment.
    `asked`: whether the command says whom to let in. Raises SettingError for that, which belongs into their files."""
    named = read(TenantsSettings, "CADRE_").tenants
    folder = given or (Path(named) if named else None)
    if folder is not None and (asked or read_access_settings() != AccessSettings()):
        raise SettingError(
            "CADRE_TENANTS is set, and so is whom to let in (CADRE_AUTH, CADRE_ADMIN_KEY, CADRE_ALLOWED_HOSTS,"
            f" CADRE_KEY_RATE, --auth, --insecure): write that into each tenant's {TENANT_FILE} (docs/tenants.md)"
        )
    return folder
