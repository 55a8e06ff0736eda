"""Schedules, triggers and notices: handled when something is due, by whichever gateway is told first."""
