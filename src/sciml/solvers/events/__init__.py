"""What happens during a solve: events that are sought and times that are given, and what is recorded of them."""
