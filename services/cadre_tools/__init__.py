"""The tool executor: hosts Python functions as tools that every agent of the deployment may call."""
