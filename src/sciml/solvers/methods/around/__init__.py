"""Methods that wrap a method: limits, projections, memory of earlier steps, switching."""
