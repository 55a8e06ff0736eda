"""Lets `python -m cadre_tools` do what `cadre tools` does."""

from cadre.cli.main import main

main("tools")
