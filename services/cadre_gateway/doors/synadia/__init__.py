"""Synadia's agent protocol: agents as services on NATS, which callers there find and prompt."""

from cadre_gateway.doors.declaration import Door

DOOR = Door(
    name="synadia",
    listens="cadre_gateway.doors.synadia.door:SynadiaDoor",
)
