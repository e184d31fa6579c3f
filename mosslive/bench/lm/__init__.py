"""Benchmarks of the language model and its engine."""
