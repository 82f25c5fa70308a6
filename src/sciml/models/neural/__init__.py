r"""Models of dynamics with neural networks for their unknown parts.

All are models like in `sciml.models`: callable PyTrees whose leaves, the weights, are arrays, for `sciml.solve`,
`jax.vmap`, `jax.grad` and `sciml.training.train`. A random `key` makes the weights at the start.

Nothing is known
    `NeuralODE`; `AugmentedNeuralODE`, with components that nobody sees; `NeuralSDE`, with noise; `NeuralCDE`, which
    measurements drive, by a `measured_path`; `LatentODE`, whose state is coded in what is observed
Part of the equation is known
    `UniversalODE` (UDE): a model and a network for a term
The structure is known
    `HamiltonianNetwork`, `PotentialNetwork`, `LagrangianNetwork`: energy is conserved; `PortHamiltonian`: power is
    balanced; `LearnedFlux`, `ConservativeClosure`, `SpectralClosure`, `StressClosure`: what fields hold is
    conserved
Of what they are made
    `Network`, `ConvolutionalNetwork`; what networks are told of time: `Elapsed`, `Seasons`
"""

from typing import TYPE_CHECKING

from ... import _former_names as _former_names
from ._clocks import Elapsed as Elapsed, Seasons as Seasons
from ._closures import (
    ConservativeClosure as ConservativeClosure,
    LearnedFlux as LearnedFlux,
    SpectralClosure as SpectralClosure,
    StressClosure as StressClosure,
)
from ._equations import (
    AugmentedNeuralODE as AugmentedNeuralODE,
    NeuralCDE as NeuralCDE,
    NeuralODE as NeuralODE,
    NeuralSDE as NeuralSDE,
    measured_path as measured_path,
)
from ._latent_ode import LatentODE as LatentODE
from ._mechanics import (
    HamiltonianNetwork as HamiltonianNetwork,
    LagrangianNetwork as LagrangianNetwork,
    PortHamiltonian as PortHamiltonian,
    PotentialNetwork as PotentialNetwork,
)
from ._networks import ConvolutionalNetwork as ConvolutionalNetwork, Network as Network
from ._universal import UniversalODE as UniversalODE

if not TYPE_CHECKING:  # a type checker would believe that there is every name
    __getattr__ = _former_names.knows_former_names(__name__)
