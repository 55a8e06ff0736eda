"""The command `cadre`: one module per verb, loaded when the verb is used."""
