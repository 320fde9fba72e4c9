"""Features of files, each with what becomes of it and a small file that shows it: `rows.py` says what a row is."""
