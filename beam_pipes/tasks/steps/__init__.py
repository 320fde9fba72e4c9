"""Declarations about examples, and the steps over them: each with the forms it has."""
