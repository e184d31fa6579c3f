"""Dependencies: lock files, known vulnerabilities, the list of parts in a release.

Developer tools, not part of the wheel. They know nothing of mosslive's code. docs/supply-chain.md
explains them.
"""
