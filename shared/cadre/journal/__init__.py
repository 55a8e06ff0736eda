"""The permanent record of a run: events, the state that they fold into, what can arrive."""
