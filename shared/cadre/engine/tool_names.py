"""Names that every agent's model is offered beside its tools and members."""

FINAL_ANSWER = "final_answer"
