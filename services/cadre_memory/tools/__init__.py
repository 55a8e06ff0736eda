"""The tools that agents call, and the questions that people ask of their memories."""
