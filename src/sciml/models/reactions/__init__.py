"""Reactions of well-known names, of concentrations and of single molecules."""
