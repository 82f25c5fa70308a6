"""Fields that are split over devices: halos, sums over devices, transforms and linear solves."""
