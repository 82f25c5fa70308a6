"""Non-uniform grids, curvilinear coordinates, and immersed bodies."""
