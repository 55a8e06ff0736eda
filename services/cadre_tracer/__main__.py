"""Lets `python -m cadre_tracer` do what `cadre tracer` does."""

from cadre.cli.main import main

main("tracer")
