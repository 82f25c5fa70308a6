"""Well-known reactions, of concentrations and of single molecules."""
