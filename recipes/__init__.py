"""Recipes: how what ships with the package was made. Run them from the root of the repository."""
