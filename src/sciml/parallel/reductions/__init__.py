"""Reductions over members: moments, quantiles, histograms, the best."""
