"""Lets `python -m cadre_sandbox` start the service."""

from cadre_sandbox.main import command

command()
