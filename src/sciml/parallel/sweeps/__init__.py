"""Sweeps: blocks of members on devices, stored on disk, resumed, and retried after failures."""
