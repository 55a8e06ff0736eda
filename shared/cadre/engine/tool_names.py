"""Names that every agent's model is offered in addition to its tools and members."""

FINAL_ANSWER = "final_answer"
