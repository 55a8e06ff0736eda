"""Lets `python -m cadre_scripted_model` do what `cadre scripted-model` does."""

from cadre.cli.main import main

main("scripted-model")
