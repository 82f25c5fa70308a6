"""What is kept of many members: moments, quantiles, histograms, the best."""
