"""The types that a model may have: solvers read them, models implement them."""
