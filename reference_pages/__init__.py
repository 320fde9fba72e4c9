"""Pages of the documentation that are made from the code: `python -m reference_pages` writes them, a test compares."""
