"""One member from the start to the end: the loops, what they record, and how members share them."""
