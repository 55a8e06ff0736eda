"""The verbs for a team and its services: started, made anew, listed, drawn, checked."""
