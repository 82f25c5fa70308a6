"""Initial value problems with known answers."""
