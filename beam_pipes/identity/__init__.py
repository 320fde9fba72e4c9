"""Fingerprints: code and values as bytes that depend on neither place nor time."""
