"""The loop over batches: where they come from, one compiled step, what the host does between steps."""
