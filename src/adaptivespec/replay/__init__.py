"""Trace files, and replay: other rules and policies on the trees of a trace."""
