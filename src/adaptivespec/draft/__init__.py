"""Drafters: what proposes the tree that the target verifies."""
