"""Lets `python -m cadre_memory` start the service."""

import sys

import click

from cadre.errors import CadreError
from cadre_memory.main import command

try:
    command()
except CadreError as error:
    click.echo(f"cadre: {error}", err=True)
    sys.exit(2)
