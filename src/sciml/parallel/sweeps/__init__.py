"""Sweeps: blocks of members over devices, kept on disk, resumed, and tried again where they fail."""
