"""Made by `python -m beam_pipes.transforms.operators.stubs` from the table of operators; not to be edited."""

from typing import Any

from beam_pipes.graph.data_node import DataNode

class Abs:
    """`abs(x)`: the absolute value, in the dtype of x, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, x: Any, **arguments: Any) -> DataNode: ...

class Acos:
    """`acos(x)`: the arccosine, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, x: Any, **arguments: Any) -> DataNode: ...

class Acosh:
    """`acosh(x)`: the inverse hyperbolic cosine, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, x: Any, **arguments: Any) -> DataNode: ...

class Asin:
    """`asin(x)`: the arcsine, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, x: Any, **arguments: Any) -> DataNode: ...

class Asinh:
    """`asinh(x)`: the inverse hyperbolic sine, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, x: Any, **arguments: Any) -> DataNode: ...

class Atan:
    """`atan(x)`: the arctangent, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, x: Any, **arguments: Any) -> DataNode: ...

class Atan2:
    """`atan2(y, x)`: the angle of the point (x, y) in radians, element by element.

    Inputs: y, x.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, y: Any, x: Any, **arguments: Any) -> DataNode: ...

class Atanh:
    """`atanh(x)`: the inverse hyperbolic tangent, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, x: Any, **arguments: Any) -> DataNode: ...

class Cbrt:
    """`cbrt(x)`: the cubic root, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, x: Any, **arguments: Any) -> DataNode: ...

class Ceil:
    """`ceil(x)`: the next higher whole number, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, x: Any, **arguments: Any) -> DataNode: ...

class Clamp:
    """`clamp(value, low, high)`: the value, held between low and high, element by element.

    Inputs: value, low, high.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, value: Any, low: Any, high: Any, **arguments: Any) -> DataNode: ...

class Cos:
    """`cos(x)`: the cosine, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, x: Any, **arguments: Any) -> DataNode: ...

class Cosh:
    """`cosh(x)`: the hyperbolic cosine, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, x: Any, **arguments: Any) -> DataNode: ...

class Exp:
    """`exp(x)`: e to the power of x, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, x: Any, **arguments: Any) -> DataNode: ...

class Fabs:
    """`fabs(x)`: the absolute value as a float, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, x: Any, **arguments: Any) -> DataNode: ...

class Floor:
    """`floor(x)`: the next lower whole number, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, x: Any, **arguments: Any) -> DataNode: ...

class Fpow:
    """`fpow(base, exponent)`: the power as a float, element by element.

    Inputs: base, exponent.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, base: Any, exponent: Any, **arguments: Any) -> DataNode: ...

class Log:
    """`log(x)`: the natural logarithm, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, x: Any, **arguments: Any) -> DataNode: ...

class Log10:
    """`log10(x)`: the logarithm to base 10, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, x: Any, **arguments: Any) -> DataNode: ...

class Log2:
    """`log2(x)`: the logarithm to base 2, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, x: Any, **arguments: Any) -> DataNode: ...

class Max:
    """`max(left, right)`: the greater number, element by element.

    Inputs: left, right.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, left: Any, right: Any, **arguments: Any) -> DataNode: ...

class Min:
    """`min(left, right)`: the lesser number, element by element.

    Inputs: left, right.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, left: Any, right: Any, **arguments: Any) -> DataNode: ...

class Pow:
    """`pow(base, exponent)`: the power; integers stay integers, element by element.

    Inputs: base, exponent.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, base: Any, exponent: Any, **arguments: Any) -> DataNode: ...

class Rsqrt:
    """`rsqrt(x)`: 1 divided by the square root, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, x: Any, **arguments: Any) -> DataNode: ...

class Sin:
    """`sin(x)`: the sine, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, x: Any, **arguments: Any) -> DataNode: ...

class Sinh:
    """`sinh(x)`: the hyperbolic sine, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, x: Any, **arguments: Any) -> DataNode: ...

class Sqrt:
    """`sqrt(x)`: the square root, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, x: Any, **arguments: Any) -> DataNode: ...

class Tan:
    """`tan(x)`: the tangent, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, x: Any, **arguments: Any) -> DataNode: ...

class Tanh:
    """`tanh(x)`: the hyperbolic tangent, element by element.

    Inputs: x.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, x: Any, **arguments: Any) -> DataNode: ...
