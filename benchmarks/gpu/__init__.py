"""The parts of gpu_check.py: models, plan, engines, checks, report."""
