"""The GPU runs are scripts that find one another by their folder; so do their tests."""

import sys
from pathlib import Path

GPU = Path(__file__).parents[2] / "gpu"
sys.path[:0] = [str(GPU), str(GPU / "pair")]
