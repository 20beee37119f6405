"""Training an EAGLE-3 head for a target on the target's own answers."""
