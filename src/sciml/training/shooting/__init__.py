"""Multiple shooting: one trajectory in pieces, each with its own initial state."""
