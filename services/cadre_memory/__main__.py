"""Lets `python -m cadre_memory` do what `cadre memory` does."""

from cadre.cli.main import main

main("memory")
