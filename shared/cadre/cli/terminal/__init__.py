"""What the verbs of the command line draw on a terminal and ask there."""
