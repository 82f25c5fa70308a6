"""Information criteria, which penalise the number of parameters."""

from typing import NamedTuple

import numpy as np

from .._types import RealScalarLike


class InformationCriteria(NamedTuple):
    """Akaike's and Schwarz's criteria; the model with the smaller one is to be preferred.

    Attributes:
        aic: Akaike's.
        aicc: Akaike's, corrected for few observations; infinite if there are too few.
        bic: Schwarz's, or Bayes'.
    """

    aic: float
    aicc: float
    bic: float


def information_criteria(log_likelihood: RealScalarLike, n_parameters: int, n_observations: int) -> InformationCriteria:
    r"""Returns AIC $= 2k - 2 \log L$, AICc $=$ AIC $+ \frac{2k(k + 1)}{n - k - 1}$, and BIC $= k \log n - 2 \log L$.

    They compare models of the same data by likelihoods at their maxima, where all constants count: use
    `LogDensity.log_likelihood`. An estimated standard deviation of the noise is also a parameter.

    Args:
        log_likelihood: $\log L$ at its maximum.
        n_parameters: $k$, such as `density.size`.
        n_observations: $n$, such as `density.n_observations`.

    Returns:
        The three, as `InformationCriteria`.

    Raises:
        ValueError: If there are no observations, or the log-likelihood is not finite.

    Source:
        K. P. Burnham and D. R. Anderson, Model Selection and Multimodel Inference, 2nd edition, 2002.

    Example:
        ```python
        from sciml import inference

        found = inference.information_criteria(-12.0, n_parameters=2, n_observations=10)
        assert found.aic == 28 and abs(found.aicc - (28 + 12 / 7)) < 1e-12
        ```
    """
    value = float(np.asarray(log_likelihood))
    if not np.isfinite(value):
        raise ValueError(f"`log_likelihood` must be finite, but is {value}.")
    if n_observations < 1 or n_parameters < 0:
        raise ValueError(
            "`n_observations` must be positive and `n_parameters` nonnegative, but got "
            f"`n_observations={n_observations}` and `n_parameters={n_parameters}`."
        )
    k, n = n_parameters, n_observations
    aic = 2 * k - 2 * value
    corrected = aic + 2 * k * (k + 1) / (n - k - 1) if n > k + 1 else float("inf")
    return InformationCriteria(aic, corrected, k * float(np.log(n)) - 2 * value)
