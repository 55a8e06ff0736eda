"""The run list and the approvals that wait, projected from the journals."""
