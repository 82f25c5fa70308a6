"""The solvers, over the registries of methods and adjoints."""
