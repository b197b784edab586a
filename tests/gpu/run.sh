#!/usr/bin/env bash
# Runs the suite for a real GPU: bash tests/gpu/run.sh OUT [SECTION...]
# Needs a driver, Python with torch and CuPy (JAX and Numba for a smoke test), and the folder that `make gpu-bundle` made.
# PYTHON=<an interpreter> chooses that Python.
set -u
python="${PYTHON:-python3}"
here="$(cd "$(dirname "$0")" && pwd)"
out="${1:?usage: run.sh OUT [SECTION...]}"
shift
sections=("$@")
[ ${#sections[@]} -gt 0 ] || sections=(driver kernels torch cupy smoke figures transfers loader)
mkdir -p "$out"
out="$(cd "$out" && pwd)"
# In the bundle this script lies beside the wheel; in a checkout the bundle is dist/gpu.
bundle="$here"
[ -e "$bundle/MANIFEST" ] || bundle="$here/../../dist/gpu"
[ -e "$bundle/MANIFEST" ] || { echo "no bundle: run make gpu-bundle" >&2; exit 2; }
site="$(mktemp -d)"
trap 'rm -rf "$site"' EXIT
# A wheel is an archive of what is installed; pip need not be there.
"$python" -m zipfile -e "$bundle"/*.whl "$site" || exit 2
export PYTHONPATH="$site:$bundle/sections${PYTHONPATH:+:$PYTHONPATH}"
export GPU_BUNDLE="$bundle"
failed=0
for section in "${sections[@]}"; do
    echo "== $section"
    # A section that hangs ends, and what it had found by then is in its file.
    timeout 470 "$python" "$bundle/sections/${section}_section.py" "$out/$section.json" || failed=1
done
exit $failed
