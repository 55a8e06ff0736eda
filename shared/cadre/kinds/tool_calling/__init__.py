"""Agents whose model answers with tool calls, after smolagents' ToolCallingAgent."""
