"""A model as closed functions."""
