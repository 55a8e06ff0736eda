"""What is wrong with manifests that no schema sees: references, names, quantities, times, walls."""
