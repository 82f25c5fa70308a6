"""The loops over one member's steps, and how members share them."""
