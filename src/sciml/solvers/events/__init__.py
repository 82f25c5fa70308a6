"""Events during a solve: zero crossings and given times, and their records."""
