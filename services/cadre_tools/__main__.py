"""Lets `python -m cadre_tools MODULE...` start the service."""

from cadre_tools.main import command

command()
