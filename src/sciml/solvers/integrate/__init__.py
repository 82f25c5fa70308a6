"""One member from the start to the end: the loops, their records, and how members share them."""
