"""Reaction networks, and SBML models: formulas and their programs."""
