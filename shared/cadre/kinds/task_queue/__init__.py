"""Agents that make a queue of tasks from their goals and do them one by one, after SuperAGI's task-queue mode."""
