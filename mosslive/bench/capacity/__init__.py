"""Benchmark of capacity: how many live conversations one device holds."""
