"""Tensor building blocks shared by the target and the drafter."""
