"""Schedules, triggers and notices: what they are, and what is due when. Pure: no clock, no I/O."""
