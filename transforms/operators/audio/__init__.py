"""Operators over sound and its spectra."""
