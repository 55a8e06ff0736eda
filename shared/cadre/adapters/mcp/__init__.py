"""MCP servers as tools of Cadre: the only room that talks to them."""
