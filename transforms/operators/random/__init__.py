"""Operators that draw random numbers, keyed by record."""
