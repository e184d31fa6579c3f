"""The examination of the bundled model; `mosslive bench bundled` runs it."""
