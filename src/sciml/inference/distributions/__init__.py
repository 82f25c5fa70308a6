"""Distributions: priors of parameters, and what observations are drawn from."""
