"""Datasets, samplers, batch functions and a loader over whatever has `__len__` and `__getitem__`."""
