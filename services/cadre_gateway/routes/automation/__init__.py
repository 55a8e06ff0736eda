"""The HTTP routes of what runs by itself: schedules, triggers, notices."""
