"""Pictures of solutions, ensembles, sweeps and convergence.

Functions with an argument `ax` draw on it, or on a new figure; the others always make a figure. They return the
Matplotlib `Axes`, or an array of them, on which everything can be changed. Matplotlib is loaded when the first picture
is drawn; `pip install "sciml-jax[plot]"` installs it. Colour-blind readers can distinguish the colours, and values that
are not finite are left out, never connected across.

- `trajectory`: the components of a solution over time; a batch of solutions as a fan.
- `rows`: each component on separate axes, if their sizes differ.
- `phase`: one component against another.
- `bands`: bands of quantiles over time.
- `surface`: a quantity over a grid of two parameters.
- `bifurcation`: branches of steady states over a parameter.
- `order`: errors against step sizes, with the observed order.
- `waterfall`: where many starts of a fit ended; `parameters`: their estimates.
- `observables`: measurements and predictions over time, in a panel for each observable.
- `goodness_of_fit`, `individual_fits`, `predictive_check`: measurements and predictions of a population.
- `weighted_residuals`, `etas`: weighted residuals of a population, and the random effects of its subjects.

Of solutions on a `sciml.spatial.Grid`:

- `space_time`: one dimension over time.
- `frames`: two dimensions at some times.
- `slices`: three dimensions, on planes through a point.
- `quiver`: a vector field in the plane.
- `animate`: a film, as GIF or MP4.
- `field`: a field that has no time, in one to three dimensions.

Functions that draw values accept `cmap`, `vmin` and `vmax`, `labels` that name the components with their units, and a
`title`.
"""

from typing import TYPE_CHECKING

from .. import _former_names as _former_names
from ._animate import animate as animate
from ._bifurcation import bifurcation as bifurcation
from ._errors import order as order
from ._estimates import observables as observables, parameters as parameters
from ._parameters import surface as surface, waterfall as waterfall
from ._phase import phase as phase, quiver as quiver
from ._pictures import field as field, frames as frames, slices as slices, space_time as space_time
from ._population import (
    etas as etas,
    goodness_of_fit as goodness_of_fit,
    individual_fits as individual_fits,
    predictive_check as predictive_check,
    weighted_residuals as weighted_residuals,
)
from ._trajectory import bands as bands, rows as rows, trajectory as trajectory

if not TYPE_CHECKING:  # a type checker would believe that there is every name
    __getattr__ = _former_names.knows_former_names(__name__)
