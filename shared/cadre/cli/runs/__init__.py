"""The verbs for runs: started, followed, shown, decided on, steered and forked."""
