"""The code that both sides of the jail share: frames, values, signatures, exit codes."""
