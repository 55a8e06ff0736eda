"""The pure loop: what a run is, what becomes true when something arrives, and what is owed then.

Nothing here reads a clock, draws a random number or does I/O: all that a decision may know is on the arrival.
"""
