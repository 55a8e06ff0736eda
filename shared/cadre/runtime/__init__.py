"""An agent's runs, taken forward: load, decide, journal, pay."""
