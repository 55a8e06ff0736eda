"""What an agent's file may say: the agent's specification, its policies, answer schema and prices."""
