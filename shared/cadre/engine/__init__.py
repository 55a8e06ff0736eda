"""What every kind of agent may use: steps, calls, budgets, answers, timers, the chat. Pure."""
