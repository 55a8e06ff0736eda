"""Programs that pods of the tests run: they are mounted, not imported here."""
