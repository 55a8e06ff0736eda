"""The tool `ask_user`: a question that waits, as a call held for approval, until a person answers it."""

from cadre.tool import tool

NO_ANSWER = "No answer was given."


# The person's answer is a correction of the call: it arrives as an argument.
@tool(approval="always", read_only=True)
def ask_user(question: str, answer: str = "") -> str:
    """Asks the person whom you work for a question, and waits for the answer. Use it when you lack something
    that only they can know or decide; it may take them long.

    Args:
        question: One question that can be understood without knowing what you did so far.
        answer: Leave it out: the person fills it in.

    Returns:
        What the person answered.
    """
    return answer.strip() or NO_ANSWER
