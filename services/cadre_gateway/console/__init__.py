"""The console: a page that shows the team at work, as files of the wheel."""
