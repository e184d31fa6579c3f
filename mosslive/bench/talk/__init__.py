"""Benchmark of live conversations from end to end."""
