"""Training for a target, on its own answers: a draft head and a verification head."""
