"""The code inside the jail, and in the process that forks it: nothing here imports the outside."""
