"""Independent implementations the tests compare with; they share no code with the package."""
