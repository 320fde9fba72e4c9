"""Operators that give records."""
