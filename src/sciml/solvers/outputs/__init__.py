"""What a solve may save beside states at given times: every step, functions of states, and dense output."""
