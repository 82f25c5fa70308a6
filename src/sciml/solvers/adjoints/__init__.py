"""How a loop is differentiated; `sciml.adjoints` is the public face of these files."""
