"""Lets `python -m cadre_tracer` start the service."""

from cadre_tracer.main import command

command()
