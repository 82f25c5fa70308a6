"""Stencil kernels in Pallas for GPUs and TPUs, and what only they need."""
