"""Tenants are made, listed and removed by command, and the environment lets no one in to them."""

import os
from pathlib import Path

import pytest

from cadre.deploy.tenants import ACCOUNTS_FILE, ADMIN_KEY
from harness.command import Commands


@pytest.fixture
def cadre(tmp_path: Path) -> Commands:
    return Commands(tmp_path, {k: v for k, v in os.environ.items() if not k.startswith("CADRE_")})


def test_tenants_are_made_listed_and_removed_by_command(cadre: Commands) -> None:
    folder = cadre.folder / "tenants"
    made = cadre("tenant", "create", "acme", "--host", "acme.example.com", "--storage-bytes", "5000000")
    assert made.returncode == 0, made.stderr
    assert "CADRE_TENANTS=tenants cadre gateway" in made.stderr
    assert (folder / "acme" / ADMIN_KEY).stat().st_mode & 0o077 == 0
    key = (folder / "acme" / ADMIN_KEY).read_text()
    again = cadre("tenant", "create", "acme")
    assert again.returncode == 0, again.stderr
    assert (folder / "acme" / ADMIN_KEY).read_text() == key
    accounts = (folder / ACCOUNTS_FILE).read_text()
    assert "jetstream: {max_file: 5000000}" in accounts
    assert key.strip() not in accounts

    taken = cadre("tenant", "create", "bolt", "--host", "acme.example.com")
    assert taken.returncode != 0
    assert "acme.example.com" in taken.stderr
    without = cadre("tenant", "create", "carl")
    assert without.returncode != 0
    assert "--host" in without.stderr
    assert cadre("tenant", "create", "no/way", "--host", "x.org").returncode != 0

    assert cadre("tenant", "remove", "bolt").returncode == 0
    assert cadre("tenant", "list").stdout == "acme\tacme.example.com\n"
    assert cadre("tenant", "remove", "bolt").returncode != 0


def test_a_gateway_of_tenants_takes_nobodys_access_from_the_environment(cadre: Commands) -> None:
    cadre("tenant", "create", "acme", "--host", "acme.example.com")
    for given in ({"CADRE_ADMIN_KEY": "x" * 40}, {"CADRE_AUTH": "off"}, {"CADRE_ALLOWED_HOSTS": "a.org"}):
        refused = cadre("gateway", "--port", "0", CADRE_TENANTS=str(cadre.folder / "tenants"), **given)
        assert refused.returncode == 2
        assert "each tenant's tenant.yaml" in refused.stderr
