"""The building blocks of every kind of agent: steps, calls, budgets, answers, timers, the chat. Pure."""
