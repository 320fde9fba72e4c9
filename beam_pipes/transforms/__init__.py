"""The library of transformations of examples."""
