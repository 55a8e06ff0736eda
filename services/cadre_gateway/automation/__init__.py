"""Schedules, triggers and notices: handled when something is due, by the first gateway that receives it."""
