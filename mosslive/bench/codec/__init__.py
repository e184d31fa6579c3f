"""Benchmarks of the codec's networks."""
