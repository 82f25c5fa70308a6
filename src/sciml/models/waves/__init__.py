"""Waves: sound, light, elastic waves, solitons and quantum states."""
