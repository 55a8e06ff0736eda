"""Lets `python -m cadre_gateway` do what `cadre gateway` does."""

from cadre.cli.main import main

main("gateway")
