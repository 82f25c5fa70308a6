"""Bifurcation analysis: branches of steady states, their stability, and the points at which it changes.

- `continuation`: a branch of steady states as a parameter changes.
- `locate`: a fold, a Hopf point or a branch point from a guess.
- `locus`: a curve of folds or Hopf points in the plane of two parameters.
- `Kind`: codes of special points.
"""

from ._continuation import continuation as continuation
from ._locate import locate as locate
from ._locus import locus as locus
from ._special import Kind as Kind
