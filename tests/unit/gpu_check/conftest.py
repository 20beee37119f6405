"""The scripts under benchmarks/ import each other by their plain names."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))
