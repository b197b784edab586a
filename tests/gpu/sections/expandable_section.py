"""The section `torch` once more, with segments that grow: PyTorch's memory is then mapped, not allocated."""

from __future__ import annotations

import os
import runpy
from pathlib import Path

# As PyTorch reads it when its allocator is first used, under its name before 2.9 and from then on.
for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
    os.environ[name] = "expandable_segments:True"
runpy.run_path(str(Path(__file__).with_name("torch_section.py")), run_name="__main__")
