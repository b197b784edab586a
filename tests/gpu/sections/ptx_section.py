"""The section `kernels` once more, with fewer rows, on kernels that the driver compiles from the PTX."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

# As the driver reads it when it is started: it then refuses cubins.
os.environ["CUDA_FORCE_PTX_JIT"] = "1"
sys.argv.append("--few")
runpy.run_path(str(Path(__file__).with_name("kernels_section.py")), run_name="__main__")
