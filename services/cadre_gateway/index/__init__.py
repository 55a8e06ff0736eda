"""The index, a database that follows from the journals: runs, calls that wait, what is to be removed; what was used."""
