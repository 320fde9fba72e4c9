"""Declarations about examples, and the steps over them, each in its available forms."""
