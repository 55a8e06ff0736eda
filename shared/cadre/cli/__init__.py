"""The command `cadre`: one module per verb, in the room of its subject, loaded when the verb is used."""
