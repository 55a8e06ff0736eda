"""The output and the questions of the command line's verbs on a terminal."""
