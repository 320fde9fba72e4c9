"""Operators over text and tokens."""
