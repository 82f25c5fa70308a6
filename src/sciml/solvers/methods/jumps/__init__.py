"""Methods for reactions of single molecules."""
