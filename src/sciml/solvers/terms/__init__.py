"""A model as closed functions of time and state, which methods evaluate."""
