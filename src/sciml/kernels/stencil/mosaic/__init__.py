"""Stencil kernels in Pallas for GPUs and TPUs, and their helpers."""
