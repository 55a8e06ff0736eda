"""Interpreter processes from outside: forked from a zygote, spoken to in frames, their scratch folders."""
