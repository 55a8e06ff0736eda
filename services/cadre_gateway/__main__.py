"""`python -m cadre_gateway`."""

from cadre_gateway.main import command

command()
