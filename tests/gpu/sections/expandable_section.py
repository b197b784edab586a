"""The section `torch` once more, with segments that grow: PyTorch's memory is then mapped, not allocated."""

from __future__ import annotations

import os
import runpy
from pathlib import Path

# As PyTorch reads it when its allocator is first used.
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
runpy.run_path(str(Path(__file__).with_name("torch_section.py")), run_name="__main__")
