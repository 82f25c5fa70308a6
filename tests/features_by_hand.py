"""The problem of `tests.features` in NumPy: classical Runge-Kutta steps from one thing that happens to the next.

Nothing here calls a solver. Steps are short, events are bisected, saved times and jumps end steps.
"""

import bisect
from collections.abc import Callable
from typing import Any

import numpy as np

from . import features
from .features import Setting

STEP = 1 / 128
SMALL = 1e-13


class _Past:
    """The states that were passed through: pieces of steps without a jump, between whose ends is a cubic."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.steps: list[tuple] = []

    def add(self, t: float, h: float, y: Any, f: Any, y1: Any, f1: Any) -> None:
        self.times.append(t)
        self.steps.append((t, h, y, f, y1, f1))

    def __call__(self, t: float, before: bool, jump: float = np.inf) -> Any:
        """The state at a time; at a jump the one before or after it, and beyond the given one as before it."""
        place = min(t, jump)
        before |= t >= jump
        if place < SMALL and (before or place < -SMALL):
            return np.array(features.PAST)
        i = bisect.bisect_right(self.times, place - SMALL if before else place + SMALL) - 1
        t0, h, y, f, y1, f1 = self.steps[max(i, 0)]
        s = (t - t0) / h
        return (
            (1 + 2 * s) * (1 - s) ** 2 * y
            + s * (1 - s) ** 2 * h * f
            + s**2 * (3 - 2 * s) * y1
            + s**2 * (s - 1) * h * f1
        )


SETTLED = 0.02
"""The time after which all molecules have reacted: some 20 times their mean life."""


class Undecided(Exception):
    """Raised if the loop has no right numbers, or differences are no derivatives: something is barely touched."""


def by_hand(
    setting: Setting, a: float, start: Any, end: float, noise: Callable[[float], float] = lambda t: 0.0
) -> np.ndarray:
    """The numbers of one member, in the order of `features.solve`."""
    if setting.reactions:
        return _counted(setting, a, start, end)
    return _Loop(setting, a, start, end, noise).run()


class _Loop:
    """One member. Places count from the start in the direction of time; of what runs dry, the root is stepped."""

    def __init__(self, setting: Setting, a: float, start: Any, end: float, noise: Callable[[float], float]):
        self.setting, self.a, self.noise = setting, a, noise
        self.way = -1.0 if setting.backwards else 1.0
        self.span = (end - setting.begin) * self.way
        self.outputs = [f * self.span for f in features.SAVED] if setting.saved else []
        self.looked = [f * self.span for f in features.EVALUATED] if setting.dense else []
        given = [(c * a, "dose", amount) for c, amount in features.DOSES] if setting.doses else []
        if setting.held:
            given += [(features.SWITCH * a, "switch", 0.0)]
        places = [((t - setting.begin) * self.way, kind, amount) for t, kind, amount in given]
        self.queue = sorted(p for p in places if -SMALL <= p[0] <= self.span + SMALL)
        self.breaks = {*self.outputs, *self.looked, self.span, *(p[0] for p in self.queue)}
        self.past, self.jumps, self.next_jump = _Past(), [], np.inf
        self._jumped(0.0)
        x, z = start
        self.y = np.array([np.sqrt(x) if setting.positive else x, z], float)
        self.s = 0.0
        self.times: list[float] = []
        self.after: list[Any] = []
        self.reached = [self._amount(self.y)]

    def _clock(self, s: float) -> float:
        return self.setting.begin + self.way * s

    def _jumped(self, s: float) -> None:
        if self.setting.tracked:
            self.jumps.append(s)
        elif self.setting.delayed:  # steps end where a jump comes back
            self.breaks |= {s + k * features.DELAY for k in range(int(self.span / features.DELAY) + 2)}

    def _inflow(self, s: float, edge: bool) -> float:
        if not self.setting.held:
            return self.setting.inflow
        t, jump = self._clock(s), features.SWITCH * self.a
        later = t > jump if abs(t - jump) > SMALL else (self.way > 0) != edge
        return features.FLOWS[int(later)]

    def _rate(self, s: float, y: Any, edge: bool) -> Any:
        """The rate at a place; with `edge` as from before, at the end of a step."""
        x, z = y
        setting, u = self.setting, self._inflow(s, edge)
        x += self._shaken(s)
        then = 1.0 if setting.positive else x
        if setting.delayed:
            then = self.past(self._place(s, y), edge, self.next_jump)[0]
        if setting.positive:  # x is a root, of which the rate is even
            drained = 2 * self.a * x * then
            dx = (
                (u / (2 * x) if u else 0.0) - self.a * then if x else 0.0
            )  # below zero as above, up to the end of a step
        else:
            drained = self.a * then
            dx = u - drained
        dz = 0.0 if setting.mass else drained
        if not setting.mass and (setting.project or setting.leaks):
            dz = drained - u - (z if setting.leaks else 0.0)
        return self.way * np.array([dx, dz])

    def _place(self, s: float, y: Any) -> float:
        """The time of the past state that the rate reads."""
        return s - (features.lag(s, y) if self.setting.tracked else features.DELAY)

    def _step(self, s: float, y: Any, h: float) -> Any:
        self.next_jump = min((j for j in self.jumps if j > self._place(s, y) + SMALL), default=np.inf)
        k1 = self._rate(s, y, False)
        k2 = self._rate(s + h / 2, y + h / 2 * k1, False)
        k3 = self._rate(s + h / 2, y + h / 2 * k2, False)
        k4 = self._rate(s + h, y + h * k3, True)
        return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    def _shaken(self, s: float) -> float:
        """What the noise adds to the first tank: what it takes from the second where their sum stays the same."""
        noisy = self.setting.noise and self.setting.project
        return -features.NOISE * self.noise(self._clock(s)) if noisy else 0.0

    def _amount(self, y: Any) -> float:
        return max(y[0], 0.0) ** 2 if self.setting.positive else y[0]

    def _shown(self) -> Any:
        x = self._amount(self.y) + self._shaken(self.s)
        z = self.y[1] + features.NOISE * self.noise(self._clock(self.s))
        return np.array([x, features.TOTAL - x if self.setting.mass else z])

    def _change(self, by: tuple[float, float]) -> None:
        x = self._amount(self.y) + by[0]
        self.y = np.array([np.sqrt(x) if self.setting.positive else x, self.y[1] + by[1]])
        self._jumped(self.s)

    def _record(self) -> None:
        self.times.append(self._clock(self.s))
        self.after.append(self._shown())

    def _given(self) -> None:
        """What happens at a time that is known."""
        while self.queue and self.queue[0][0] <= self.s + SMALL:
            _, kind, amount = self.queue.pop(0)
            if kind == "dose":
                self._change((amount, 0.0))
            self._jumped(self.s)
            self._record()

    def _crossed(self, new: Any, h: float) -> tuple[float, str] | None:
        """The first thing that happens within a step, and after how much of it."""
        on, stop = self.setting.thresholds
        x0, x1 = self._amount(self.y), self._amount(new)
        wanted = [(stop, "stop")] * self.setting.ends + [(on, "on")] * self.setting.goes_on
        tests = [(v, kind) for v, kind in wanted if (x0 - v) * (x1 - v) < 0 or x1 == v != x0]
        if self.setting.positive and self.y[0] > 0 > new[0]:
            tests.append((0.0, "dry"))
        # where a jump comes back, by a delay that is a function
        ends = self._place(self.s, self.y), self._place(self.s + h, new)
        tests += [(j, "back") for j in self.jumps if ends[0] < j - SMALL and ends[1] > j]
        found = []
        for v, kind in tests:
            values: Any = {"dry": lambda s, y: y[0], "back": lambda s, y, v=v: self._place(s, y) - v}
            value = values.get(kind, lambda s, y, v=v: self._amount(y) - v)
            low, high = 0.0, h
            for _ in range(60):
                middle = (low + high) / 2
                moved = value(self.s + middle, self._step(self.s, self.y, middle))
                same = moved * value(self.s, self.y) > 0
                low, high = (middle, high) if same else (low, middle)
            found.append((high, kind))
        return min(found, default=None)

    def _until(self, goal: float) -> str:
        """Steps up to a place, or to what happens before it, whose name it returns."""
        longest = STEP if self.span < 2 else 4 * STEP
        if self.setting.noise and self.setting.project:  # the rate reads a rough path
            longest /= 4
        count = max(1, int(np.ceil((goal - self.s) / longest - 1e-9)))
        h = (goal - self.s) / count
        for _ in range(count):
            new = self._step(self.s, self.y, h)
            crossed = self._crossed(new, h)
            if crossed:
                h = crossed[0]
                new = self._step(self.s, self.y, h)
            if self.setting.delayed:
                ends = self._rate(self.s, self.y, False), self._rate(self.s + h, new, True)
                self.past.add(self.s, h, self.y, ends[0], new, ends[1])
            self.s, self.y = self.s + h, new
            self.reached.append(self._amount(new))
            if crossed:
                return crossed[1]
        self.s = goal
        return ""

    def run(self) -> np.ndarray:
        """All numbers."""
        saved, looked = {}, {}
        kind = ""
        self._given()
        while kind != "stop" and self.s < self.span - SMALL:
            kind = self._until(min(b for b in self.breaks if b > self.s + SMALL))
            if kind == "dry":
                if any(name == "switch" for _, name, _ in self.queue):
                    raise Undecided("the root of an amount cannot leave zero when the inflow is switched on")
                self.y = np.array([0.0, self.y[1]])
            elif kind == "on":
                self._change(features.MOVED)
            elif kind == "back":
                self._jumped(self.s)
            if kind in ("on", "stop"):
                self._record()
            if kind:
                continue
            looked[self.s] = self._shown()  # at an event the state before it
            self._given()
            saved[self.s] = self._shown()
        last = self._shown()
        missing = np.full(2, np.nan) if self.span > 0 else last
        parts: list[Any] = [last, self._clock(self.s)]
        parts += [saved.get(s, missing) for s in self.outputs]
        parts += [looked.get(s, missing) for s in self.looked]
        if self.setting.happens:
            parts += _padded(self.times, self.after)
        if self.setting.domain:
            passed = max(self.reached) if self.setting.backwards else min(self.reached)
            parts.append(float(not self.setting.admits_for_a_while(passed)))
        return np.concatenate([np.ravel(x) for x in parts])


def _padded(times: list[float], after: list[Any]) -> list[Any]:
    kept = features.KEPT
    times = [*times, *[np.nan] * kept][:kept]
    after = [*after, *[np.full(2, np.nan)] * kept][:kept]
    return [np.array(times), np.array(after)]


def _counted(setting: Setting, a: float, start: Any, end: float) -> np.ndarray:
    """All molecules of the first kind become ones of the second, at once or nearly so; times are not compared."""
    span = abs(end - setting.begin)
    nothing = np.full(2, np.nan)
    y = np.array(start, float)
    half = features.MOLECULES / 2
    rows: list[Any] = []
    done = False

    def settle(y: Any) -> Any:
        nonlocal done
        if setting.ends and y[0] > half:
            done = True
            rows.append([np.floor(half), y[1] + y[0] - np.floor(half)])
            return np.array(rows[-1])
        if setting.goes_on and y[0] > half:
            rows.append([np.floor(half), y[1] + y[0] - np.floor(half) + 3])
            y = y + [0, 3]
        return np.array([0.0, y[0] + y[1]])

    moments = [(c * a, round(10 * dose)) for c, dose in features.DOSES if c * a <= span] if setting.doses else []
    looks = {
        f * span for f in (*(features.SAVED if setting.saved else ()), *(features.EVALUATED if setting.dense else ()))
    }
    for when, _ in moments:
        if any(0 <= t - when < SETTLED for t in (*looks, span)):
            raise Undecided("some molecules of a dose have not reacted yet")
    seen: dict[float, Any] = {}
    if span:
        y = settle(y)
    for t in sorted({*(m[0] for m in moments), *looks}):
        if done:
            break
        for when, dose in moments:
            if when == t:
                y = y + [dose, 0.0]
                rows.append(y)
                y = settle(y)
        seen[t] = y
    parts: list[Any] = [y, np.inf if done else end]
    early = np.array(start) if not span else nothing
    if setting.saved:
        parts += [seen.get(f * span, early) for f in features.SAVED]
    if setting.dense:
        parts += [seen.get(f * span, early) for f in features.EVALUATED]
    if setting.happens:
        parts += _padded([np.inf] * len(rows), [np.array(r) for r in rows])
    if setting.domain:
        parts.append(1.0 if span else 0.0)
    return np.concatenate([np.ravel(x) for x in parts])


def gradient(
    setting: Setting, weights: np.ndarray, p: dict[str, np.ndarray], noise: Callable, small: float
) -> dict[str, np.ndarray]:
    """Central differences of the weighted sum of all members, by rates, states at the start and ends."""
    out = {name: np.zeros_like(p[name], float) for name in ("a", "start", "end")}
    for i, number in enumerate(p["number"]):

        def total(a, start, end, i=i, number=number):
            numbers = by_hand(setting, a, start, end, lambda t: noise(number, t))
            return float(np.sum(np.where(weights[i] != 0, weights[i] * np.nan_to_num(numbers, posinf=0.0), 0.0)))

        if not weights[i].any():
            continue
        here = (p["a"][i], p["start"][i], p["end"][i])

        def slope(move):
            return (total(*move(small)) - total(*move(-small))) / (2 * small)

        out["a"][i] = slope(lambda d: (here[0] + d, here[1], here[2]))
        for j in range(2):
            out["start"][i, j] = slope(lambda d, j=j: (here[0], here[1] + d * np.eye(2)[j], here[2]))
        if setting.noise:
            pass  # a path has no derivative by time
        elif here[2] != setting.begin:
            out["end"][i] = slope(lambda d: (here[0], here[1], here[2] + d))
        else:
            way = -small if setting.backwards else small
            none, one, two = (total(here[0], here[1], here[2] + k * way) for k in (0, 1, 2))
            out["end"][i] = (4 * one - 3 * none - two) / (2 * way)
    return out
