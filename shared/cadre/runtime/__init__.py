"""Takes an agent's runs forward, and runs the calls of tools: load, decide, journal, pay; claim, run, settle."""
