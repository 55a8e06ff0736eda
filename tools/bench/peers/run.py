"""The run that Cadre, smolagents and LangGraph play: a page of 4 kB is read in each step, then comes the answer.

Nothing is imported here, because each of them plays it in its own environment."""

STEPS = 10
PIECES = 50
"""Of an answer that is streamed."""
TASK = "Read all of it."
END = "all read"
TEXT = "Read on " * 50


def page(number: int) -> str:
    """Return what the tool `read_page` of bench/lookup.py returns, which Cadre's executor serves."""
    return f"Page {number:03d}. " + "It has been written down so that somebody reads on. " * 80


def script() -> dict[str, object]:
    """Rules of the scripted model for a system that ends with the call `final_answer`."""
    end = {"tool_calls": [{"name": "final_answer", "arguments": {"answer": END}}]}
    call = {"name": "read_page", "arguments": {"number": "{{ turn }}"}}
    step = {"content": TEXT, "chunk": len(TEXT) // PIECES, "tool_calls": [call]}
    return {
        "rules": [
            {"name": "ends", "match": {"turn": STEPS}, "reply": end},
            {"name": "reads", "match": {}, "reply": step},
        ]
    }
