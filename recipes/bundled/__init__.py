"""The recipe of the bundled model: texts, speech, training, export. Start with README.md."""
