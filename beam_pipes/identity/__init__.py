"""What code and values are, as bytes that depend on neither place nor time: fingerprints."""
