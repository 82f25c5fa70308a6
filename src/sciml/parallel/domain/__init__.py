"""Domain decomposition: halos, sums over devices, transforms and linear solves."""
