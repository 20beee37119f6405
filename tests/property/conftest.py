"""One thread, and the plain reference code of this folder on the path."""

import sys
from pathlib import Path

import torch

torch.set_num_threads(1)
# Test folders are no packages and importlib mode leaves them off the path.
sys.path.insert(0, str(Path(__file__).parent))
