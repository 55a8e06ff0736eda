"""What is written down about a run, for ever: events, the state that they fold into, what can arrive."""
