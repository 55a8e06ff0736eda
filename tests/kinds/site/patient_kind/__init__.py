"""A kind of agent from outside Cadre: it pauses between its steps, and may ask a person before its first calls."""

import cadre  # noqa: F401 - it reads the declarations of all kinds, this one's among them, before anything else
