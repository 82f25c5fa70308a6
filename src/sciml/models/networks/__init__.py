"""Networks of reactions, and models that others wrote in SBML: formulas, and what is made of them."""
