"""Benchmarks, their reports, and the independent reference that verifies their outputs."""
