"""The verbs for what happens by itself: schedules, triggers, notices, budgets."""
