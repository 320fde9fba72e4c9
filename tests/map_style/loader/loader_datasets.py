"""Datasets that worker processes can import."""

from __future__ import annotations

import os
import time

import numpy as np

from beam_pipes.map_style import Dataset


class Numbers(Dataset):
    """Example i is `(i, array of i)`, of 4 values by default."""

    def __init__(self, size, width=4):
        self.size, self.width = size, width

    def __len__(self):
        return self.size

    def get_example(self, index):
        return index, np.full(self.width, index, dtype=np.int64)


class Raising(Numbers):
    """Raises `error` at example 5."""

    def __init__(self, size, error):
        super().__init__(size)
        self.error = error

    def __getitem__(self, index):
        if index == 5:
            raise self.error
        return super().__getitem__(index)


class Stubborn(Exception):
    """An exception that cannot be built again from its pickle."""

    def __init__(self, left, right):
        super().__init__(f"{left} and {right}")


class Refusing(Numbers):
    """Raises an exception that does not travel."""

    def get_example(self, index):
        raise Stubborn("left", "right")


class Exiting(Numbers):
    """Kills its process at example 5."""

    def get_example(self, index):
        if index == 5:
            os._exit(3)
        return super().get_example(index)


class Sleeping(Numbers):
    """Takes a minute for example 5."""

    def get_example(self, index):
        if index == 5:
            time.sleep(60)
        return super().get_example(index)


class Unsendable(Numbers):
    """Gives something that no pickle holds."""

    def get_example(self, index):
        return lambda: index


class Unopenable(Numbers):
    """Pickles, and cannot be unpickled."""

    def __setstate__(self, state):
        raise ValueError("no such file")


class WhoAmI(Numbers):
    """Example i is the id of the process that read it."""

    def get_example(self, index):
        return os.getpid()


def jitter(example, random):
    """A transform that draws."""
    return example[0], random.integers(1 << 40)
