"""Multiple shooting: one trajectory in pieces, each from a start of its own."""
