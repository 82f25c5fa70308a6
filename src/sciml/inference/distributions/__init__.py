"""Distributions: priors of parameters, and distributions of observations."""
