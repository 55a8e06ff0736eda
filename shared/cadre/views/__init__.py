"""Tell what the entries of a tree of runs mean to those who look on: pure, the same entries always give the same."""
