"""Known optima of problems of optimal control: the brachistochrone, a cart at a wall, a rocket."""

import math


def brachistochrone_time(width: float, depth: float, gravity: float = 9.81) -> float:
    r"""Returns the shortest time of a slide without friction between two points, along a cycloid.

    $$T = \theta \sqrt{r / g}, \qquad r (\theta - \sin\theta) = \text{width}, \qquad r (1 - \cos\theta) = \text{depth}$$

    Args:
        width: The horizontal distance, positive.
        depth: The vertical distance, positive.
        gravity: The acceleration.

    Source:
        A. E. Bryson and Y.-C. Ho, Applied Optimal Control, 1975, section 2.7.

    Example:
        ```python
        from sciml import verify

        assert abs(verify.reference("brachistochrone_time", 2.0, 2.0) - 0.82433867) < 1e-8
        ```
    """
    low, angle, high = 1e-3, math.pi, 2 * math.pi - 1e-3
    for _ in range(60):
        short = (angle - math.sin(angle)) * depth < (1 - math.cos(angle)) * width
        low, high = (angle, high) if short else (low, angle)
        angle = (low + high) / 2
    return angle * math.sqrt(depth / (1 - math.cos(angle)) / gravity)


def bryson_denham_cost(farthest: float) -> float:
    r"""Returns the least cost of a cart that comes back with the opposite speed and does not pass a wall.

    The cart starts at $x = 0$ with $\dot x = 1$ and is there again at $t = 1$ with $\dot x = -1$. With $x \le l$ at all
    times, the minimum of $\int_0^1 \ddot x^2 / 2 \, dt$ is

    $$\frac{4}{9 l} \;\; (l \le 1/6), \qquad 2 + 6 (1 - 4 l)^2 \;\; (l \le 1/4), \qquad 2 \;\; \text{otherwise}.$$

    Args:
        farthest: The place of the wall, $l$, positive.

    Source:
        A. E. Bryson and Y.-C. Ho, Applied Optimal Control, 1975, section 3.11.

    Example:
        ```python
        from sciml import verify

        assert abs(verify.reference("bryson_denham_cost", 1 / 9) - 4.0) < 1e-12
        ```
    """
    if farthest <= 1 / 6:
        return 4 / (9 * farthest)
    return 2 + 6 * max(0.0, 1 - 4 * farthest) ** 2


def goddard_height() -> float:
    r"""Returns the largest height of Goddard's rocket with drag, in units of the earth's radius.

    $$\dot h = v, \qquad \dot v = \frac{T - 310 \, v^2 e^{-500 (h - 1)}}{m} - \frac{1}{h^2}, \qquad \dot m = -2 T$$

    with $0 \le T \le 3.5$, from $h = 1$, $v = 0$, $m = 1$ until $m = 0.6$, in free time.

    Source:
        E. D. Dolan, J. J. Moré and T. S. Munson, Benchmarking Optimization Software with COPS 3.0, 2004: 1.01283. The
        further digits were computed by `sciml.control.optimise`.

    Example:
        ```python
        from sciml import verify

        assert abs(verify.reference("goddard_height") - 1.01283) < 1e-5
        ```
    """
    return 1.0128369
