"""Operators over samples of any kind."""
