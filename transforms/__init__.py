"""Stages of the finished examples, to run and to copy; `beam_pipes.transforms` is the library of ready ones."""
