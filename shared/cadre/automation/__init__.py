"""Schedules, triggers, notices and standing budgets: what they are, and what is due when. Pure: no clock, no I/O."""
