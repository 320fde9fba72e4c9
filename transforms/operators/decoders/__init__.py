"""Operators that turn the bytes of files into arrays."""
