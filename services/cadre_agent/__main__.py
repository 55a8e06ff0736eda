"""Lets `python -m cadre_agent` do what `cadre agent` does."""

from cadre.cli.main import main

main("agent")
