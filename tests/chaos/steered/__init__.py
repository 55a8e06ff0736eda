"""What people and clocks do to runs while processes die: cancels, messages, schedules; and what is away for a time."""
