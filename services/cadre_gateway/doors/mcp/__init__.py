"""The Model Context Protocol: agents as tools, which other programs' models call."""
