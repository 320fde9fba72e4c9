"""Made by `python -m beam_pipes.transforms.operators.stubs` from the table of operators; not to be edited."""

from typing import Any

from beam_pipes.graph.data_node import DataNode

def abs(
    x: Any,
    *,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
) -> DataNode:
    """`abs(x)`: the absolute value, in the dtype of x, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

def acos(
    x: Any,
    *,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
) -> DataNode:
    """`acos(x)`: the arccosine, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

def acosh(
    x: Any,
    *,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
) -> DataNode:
    """`acosh(x)`: the inverse hyperbolic cosine, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

def asin(
    x: Any,
    *,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
) -> DataNode:
    """`asin(x)`: the arcsine, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

def asinh(
    x: Any,
    *,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
) -> DataNode:
    """`asinh(x)`: the inverse hyperbolic sine, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

def atan(
    x: Any,
    *,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
) -> DataNode:
    """`atan(x)`: the arctangent, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

def atan2(
    y: Any,
    x: Any,
    *,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
) -> DataNode:
    """`atan2(y, x)`: the angle of the point (x, y) in radians, element by element.

    Inputs: y, x.
    Places: cpu, gpu.
    """

def atanh(
    x: Any,
    *,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
) -> DataNode:
    """`atanh(x)`: the inverse hyperbolic tangent, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

def cbrt(
    x: Any,
    *,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
) -> DataNode:
    """`cbrt(x)`: the cubic root, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

def ceil(
    x: Any,
    *,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
) -> DataNode:
    """`ceil(x)`: the next higher whole number, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

def clamp(
    value: Any,
    low: Any,
    high: Any,
    *,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
) -> DataNode:
    """`clamp(value, low, high)`: the value, held between low and high, element by element.

    Inputs: value, low, high.
    Places: cpu, gpu.
    """

def cos(
    x: Any,
    *,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
) -> DataNode:
    """`cos(x)`: the cosine, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

def cosh(
    x: Any,
    *,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
) -> DataNode:
    """`cosh(x)`: the hyperbolic cosine, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

def exp(
    x: Any,
    *,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
) -> DataNode:
    """`exp(x)`: e to the power of x, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

def fabs(
    x: Any,
    *,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
) -> DataNode:
    """`fabs(x)`: the absolute value as a float, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

def floor(
    x: Any,
    *,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
) -> DataNode:
    """`floor(x)`: the next lower whole number, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

def fpow(
    base: Any,
    exponent: Any,
    *,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
) -> DataNode:
    """`fpow(base, exponent)`: the power as a float, element by element.

    Inputs: base, exponent.
    Places: cpu, gpu.
    """

def log(
    x: Any,
    *,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
) -> DataNode:
    """`log(x)`: the natural logarithm, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

def log10(
    x: Any,
    *,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
) -> DataNode:
    """`log10(x)`: the logarithm to base 10, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

def log2(
    x: Any,
    *,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
) -> DataNode:
    """`log2(x)`: the logarithm to base 2, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

def max(
    left: Any,
    right: Any,
    *,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
) -> DataNode:
    """`max(left, right)`: the greater number, element by element.

    Inputs: left, right.
    Places: cpu, gpu.
    """

def min(
    left: Any,
    right: Any,
    *,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
) -> DataNode:
    """`min(left, right)`: the lesser number, element by element.

    Inputs: left, right.
    Places: cpu, gpu.
    """

def pow(
    base: Any,
    exponent: Any,
    *,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
) -> DataNode:
    """`pow(base, exponent)`: the power; integers stay integers, element by element.

    Inputs: base, exponent.
    Places: cpu, gpu.
    """

def rsqrt(
    x: Any,
    *,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
) -> DataNode:
    """`rsqrt(x)`: 1 divided by the square root, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

def sin(
    x: Any,
    *,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
) -> DataNode:
    """`sin(x)`: the sine, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

def sinh(
    x: Any,
    *,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
) -> DataNode:
    """`sinh(x)`: the hyperbolic sine, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

def sqrt(
    x: Any,
    *,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
) -> DataNode:
    """`sqrt(x)`: the square root, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

def tan(
    x: Any,
    *,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
) -> DataNode:
    """`tan(x)`: the tangent, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

def tanh(
    x: Any,
    *,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
) -> DataNode:
    """`tanh(x)`: the hyperbolic tangent, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """
