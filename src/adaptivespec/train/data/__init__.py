"""The training corpus: questions, the target's answers to them, and what it computes on these."""
