"""Kappa chosen to an accuracy budget: tests, certificates, and rules read from them."""
