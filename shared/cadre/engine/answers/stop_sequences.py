"""Stop sequences: beyond them a model writes its own observations."""

STOP_SEQUENCES = ["\nObservation:", "\nCalling tools:"]
"""smolagents' stop sequences for tool-calling agents, as lines begin with them: JSON holds no line break in a text."""


def cut_at_stop(text: str, stops: list[str]) -> str:
    """The text before its first stop sequence, for endpoints that do not stop by themselves."""
    ends = [at for at in (text.find(stop) for stop in stops) if at >= 0]
    return text[: min(ends)].rstrip() if ends else text
