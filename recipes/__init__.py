"""Recipes that make what ships with the package. Run them from the root of the repository."""
