"""Methods around a method: limits, projections, memory of earlier steps, a switch between two."""
