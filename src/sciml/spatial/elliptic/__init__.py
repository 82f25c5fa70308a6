"""Elliptic problems: fast transforms for separable boundaries, multigrid for all others."""
