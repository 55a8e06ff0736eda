"""Lets `python -m cadre_sandbox` do what `cadre sandbox` does."""

from cadre.cli.main import main

main("sandbox")
