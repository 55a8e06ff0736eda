"""How one message is taken, checked, tried again, put off or given up."""
