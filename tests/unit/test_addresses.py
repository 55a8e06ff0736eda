"""Tests of which addresses a page may be read from."""

import ipaddress
import re

import pytest

from cadre.adapters.addresses import (
    AddressRefused,
    checked_addresses,
    may_visit,
    read_networks,
    system_resolve,
)
from cadre.errors import SettingError

PUBLIC = ["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946", "64:ff9b::5db8:d822", "2002:5db8:d822::1"]

KEPT_BACK = [
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "100.100.100.200",  # metadata
    "169.254.169.254",  # metadata
    "168.63.129.16",  # metadata
    "192.0.0.192",  # metadata
    "198.18.0.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "2002:7f00:1::1",
    "2002:a9fe:a9fe::1",
    "fd00:ec2::254",  # metadata
    "fc00::1",
    "fe80::1",
    "fe80::1%2",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
]


@pytest.mark.parametrize("address", PUBLIC)
def test_the_public_internet_is_open(address: str) -> None:
    assert may_visit(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", KEPT_BACK)
def test_all_else_is_not(address: str) -> None:
    assert not may_visit(ipaddress.ip_address(address))
    assert may_visit(ipaddress.ip_address(address), read_networks("CADRE_VISIT_PRIVATE", "1"))


def test_only_the_networks_named_are_opened() -> None:
    allowed = read_networks("CADRE_VISIT_PRIVATE", "10.1.0.0/16, 127.0.0.1/32")
    assert may_visit(ipaddress.ip_address("10.1.9.9"), allowed)
    assert may_visit(ipaddress.ip_address("::ffff:10.1.9.9"), allowed)
    assert may_visit(ipaddress.ip_address("127.0.0.1"), allowed)
    assert not may_visit(ipaddress.ip_address("10.2.0.1"), allowed)
    assert not may_visit(ipaddress.ip_address("127.0.0.2"), allowed)
    assert not may_visit(ipaddress.ip_address("::1"), allowed)


@pytest.mark.parametrize("setting", ["", "0"])
def test_nothing_is_opened_unless_told(setting: str) -> None:
    assert read_networks("CADRE_VISIT_PRIVATE", setting) == ()


@pytest.mark.parametrize("setting", ["yes", "10.0.0.1/8", "10.0.0.0/8,"])
def test_a_wrong_setting_is_named(setting: str) -> None:
    with pytest.raises(SettingError, match="CADRE_VISIT_PRIVATE="):
        read_networks("CADRE_VISIT_PRIVATE", setting)


@pytest.mark.parametrize("host", ["localhost", "127.1", "0x7f000001", "2130706433", "0177.0.0.1", "::1"])
async def test_however_this_machine_is_written_it_is_found_out(host: str) -> None:
    with pytest.raises(AddressRefused, match=rf"^{re.escape(host)} .* (127\.0\.0\.1|::1)\b"):
        await checked_addresses(host, 80, (), system_resolve)


async def test_one_bad_address_of_several_is_enough() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["93.184.216.34", "10.0.0.1"]

    with pytest.raises(AddressRefused, match=r"10\.0\.0\.1"):
        await checked_addresses("both.example", 80, (), resolve)


async def test_a_name_that_nobody_knows_is_refused() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        raise OSError("Name or service not known")

    with pytest.raises(AddressRefused, match=r"no host 'nowhere\.example' is known"):
        await checked_addresses("nowhere.example", 80, (), resolve)
