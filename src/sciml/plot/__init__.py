"""Pictures of solutions, ensembles, sweeps and convergence.

Every function draws on `ax`, or on a new figure if none is given (`rows` always does that), and returns the
Matplotlib `Axes`, on which everything can be changed. Matplotlib is loaded when the first picture is drawn;
`pip install "sciml[plot]"` installs it. Colours are told apart by colour-blind readers, and what is not finite is
left out, never connected across.

- `trajectory`: the components of a solution over time; a batch of solutions as a fan.
- `rows`: each component on axes of its own, where their sizes differ.
- `phase`: one component against another.
- `ensemble`: bands of quantiles over time.
- `surface`: a quantity over a grid of two parameters.
- `order`: errors against step sizes, with the observed order.
"""

from ._ensemble import ensemble as ensemble
from ._order import order as order
from ._phase import phase as phase
from ._rows import rows as rows
from ._surface import surface as surface
from ._trajectory import trajectory as trajectory
