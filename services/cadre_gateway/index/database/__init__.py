"""The database that holds the index: its port, its tables, SQLite and PostgreSQL behind it."""
