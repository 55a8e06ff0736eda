"""The verbs for automation: schedules, triggers, notices, budgets."""
