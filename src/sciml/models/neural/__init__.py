r"""Models of dynamics in which networks stand for what is not known.

All are models as those of `sciml.models`: callable PyTrees whose leaves, the weights, are arrays, for `sciml.solve`,
`jax.vmap`, `jax.grad` and `sciml.training.train`. A random `key` makes the weights at the start.

Nothing is known
    `NeuralODE`; `AugmentedNeuralODE`, with components that nobody sees; `NeuralSDE`, with noise; `NeuralCDE`, which
    measurements drive, by a `hermite_path` or a `linear_path`; `LatentODE`, whose state is coded in what is observed
Part of the equation is known
    `UniversalODE` (UDE): a model and a network for a term
The structure is known
    `HamiltonianNetwork`, `PotentialNetwork`, `LagrangianNetwork`: energy is conserved; `PortHamiltonian`: power is
    balanced; `LearnedFlux`, `ConservativeClosure`, `SpectralClosure`, `StressClosure`: what fields hold is
    conserved
Of what they are made
    `Network`, `ConvolutionalNetwork`; what networks are told of time: `Elapsed`, `Seasons`
"""

from ._augmented import AugmentedNeuralODE as AugmentedNeuralODE
from ._clocks import Elapsed as Elapsed, Seasons as Seasons
from ._conservative_closure import ConservativeClosure as ConservativeClosure
from ._convolutional_network import ConvolutionalNetwork as ConvolutionalNetwork
from ._hamiltonian import HamiltonianNetwork as HamiltonianNetwork
from ._lagrangian import LagrangianNetwork as LagrangianNetwork
from ._latent_ode import LatentODE as LatentODE
from ._learned_flux import LearnedFlux as LearnedFlux
from ._network import Network as Network
from ._neural_cde import NeuralCDE as NeuralCDE
from ._neural_ode import NeuralODE as NeuralODE
from ._neural_sde import NeuralSDE as NeuralSDE
from ._paths import hermite_path as hermite_path, linear_path as linear_path
from ._port_hamiltonian import PortHamiltonian as PortHamiltonian
from ._potential import PotentialNetwork as PotentialNetwork
from ._spectral_closure import SpectralClosure as SpectralClosure
from ._stress_closure import StressClosure as StressClosure
from ._universal import UniversalODE as UniversalODE
