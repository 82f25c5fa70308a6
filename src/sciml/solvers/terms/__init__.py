"""A model as closed functions of time and state: what a method evaluates."""
