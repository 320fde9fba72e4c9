"""What size an image gets, and from which region of it, by the arguments of `fn.resize`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Final

MODES: Final = ("default", "stretch", "not_larger", "not_smaller")


@dataclasses.dataclass(frozen=True)
class Target:
    """A size in pixels, and (start, end) of the source along height and width; start > end is mirrored."""

    height: int
    width: int
    rows: tuple[float, float]
    columns: tuple[float, float]


def rounded(value: float) -> int:
    """To the nearest integer, halves up, and to one at least."""
    return max(1, math.floor(value + 0.5))


def wanted_size(extents: Sequence[float], given: Sequence[float], mode: str, max_size: Sequence[float]) -> list[float]:
    """The wanted (height, width) of a region of `extents`, in fractions of pixels; zeros in `given` are open.

    `wanted_size((720, 1280), (480, 640), "not_larger", ())` → `[360, 640]`
    """
    scales = [abs(want) / have for want, have in zip(given, extents, strict=True) if want]
    if not scales:
        return list(extents)
    if mode == "stretch":
        size = [abs(want) if want else float(have) for want, have in zip(given, extents, strict=True)]
    elif mode == "not_larger":
        size = [have * min(scales) for have in extents]
    elif mode == "not_smaller":
        size = [have * max(scales) for have in extents]
    else:
        mean = math.exp(sum(map(math.log, scales)) / len(scales))
        size = [abs(want) if want else have * mean for want, have in zip(given, extents, strict=True)]
    if len(max_size):
        limits = list(max_size) * (len(size) if len(max_size) == 1 else 1)
        if mode in ("not_larger", "not_smaller"):
            factor = min(1.0, *(limit / have for limit, have in zip(limits, size, strict=True) if limit > 0))
            size = [have * factor for have in size]
        else:
            size = [min(have, limit) if limit > 0 else have for have, limit in zip(size, limits, strict=True)]
    return size


def target_of(
    extents: Sequence[int],
    *,
    size: Any = None,
    resize_x: float = 0.0,
    resize_y: float = 0.0,
    resize_shorter: float = 0.0,
    resize_longer: float = 0.0,
    mode: str = "default",
    max_size: Sequence[float] = (),
    roi_start: Any = None,
    roi_end: Any = None,
    roi_relative: bool = False,
    subpixel_scale: bool = True,
) -> Target:
    """The target of an image of (height, width) `extents`. Raises `ValueError` where no size is given."""
    start, end = [0.0, 0.0], [float(extent) for extent in extents]
    if roi_start is not None and roi_end is not None:
        factors = extents if roi_relative else (1, 1)
        start = [float(value) * factor for value, factor in zip(roi_start, factors, strict=True)]
        end = [float(value) * factor for value, factor in zip(roi_end, factors, strict=True)]
    region = [abs(stop - begin) for begin, stop in zip(start, end, strict=True)]
    if not all(region):
        raise ValueError(f"the region {start} to {end} of the image is empty")
    if resize_shorter or resize_longer:
        given = [resize_shorter or resize_longer] * 2
        mode = "not_smaller" if resize_shorter else "not_larger"
    elif size is not None:
        given = [float(value) for value in size]
        given = given * 2 if len(given) == 1 else given
        if len(given) != 2:
            raise ValueError(f"size should be one number, or height and width, got {list(size)}")
    else:
        given = [resize_y, resize_x]
    if not any(given):
        raise ValueError("give size, resize_x, resize_y, resize_shorter or resize_longer: there is none above 0")
    wanted = wanted_size(region, given, mode, max_size)
    pixels = [rounded(value) for value in wanted]
    spans = []
    for axis in range(2):
        begin, stop = start[axis], end[axis]
        if subpixel_scale and pixels[axis] != wanted[axis]:
            # The scale is that of the fractional size: the region grows or shrinks about its centre.
            centre, half = (begin + stop) / 2, (stop - begin) / 2 * pixels[axis] / wanted[axis]
            begin, stop = centre - half, centre + half
        if given[axis] < 0:
            begin, stop = stop, begin
        spans.append((begin, stop))
    return Target(pixels[0], pixels[1], spans[0], spans[1])
