"""Grids whose cells differ, coordinates other than Cartesian ones, and bodies within a grid."""
