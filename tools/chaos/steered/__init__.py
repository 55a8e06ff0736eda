"""Steer runs while processes die: with cancels, messages and schedules, and with services that are away for a time."""
