"""What runs inside the jail, or in the process that forks it: nothing here imports the outside."""
