"""Lets `python -m cadre_operator` do what `cadre operator` does."""

from cadre.cli.main import main

main("operator")
