"""Methods that treat a stiff or linear part separately: implicit-explicit and exponential ones."""
