"""Lets `python -m cadre_scripted_model` start the server."""

from cadre_scripted_model.main import command

command()
