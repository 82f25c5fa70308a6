"""Methods that treat the stiff or the linear part of an equation apart: implicit-explicit and exponential ones."""
