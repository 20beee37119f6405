"""Graders: model code in a sandbox, mathematics in a worker process, exact comparisons."""
