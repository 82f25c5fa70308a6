"""The work of one compiled call of a long run."""
