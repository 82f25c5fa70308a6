"""The loop over batches: their source, one compiled step, and the host's work between steps."""
