"""Campaigns against the guarantees: kills, retries, corruptions, resumptions; counts of what survived."""
