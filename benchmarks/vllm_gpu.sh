#!/usr/bin/env bash
# The conformance suite for vLLM and for decoding by CUDA graphs, on a real GPU; what it prints is what
# docs/results/engines.md shows.
#   bash benchmarks/vllm_gpu.sh OUT      (vLLM only where it is installed)
set -uo pipefail
out=${1:?folder for the output}
mkdir -p "$out"
export PYTHONPATH="src${PYTHONPATH:+:$PYTHONPATH}" HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
export VLLM_USE_FLASHINFER_SAMPLER=0
{
  python3 - <<'PY'
import importlib.metadata as m
import torch
def version(name):
    try:
        return m.version(name)
    except m.PackageNotFoundError:
        return "not installed"
print({n: version(n) for n in ("vllm", "torch", "transformers")},
      torch.cuda.get_device_name(0) if torch.cuda.is_available() else "no CUDA device")
PY
  for file in tests/gpu/test_engines_{graphs,draw_kernel,vllm,vllm_server}.py; do
    echo "== $file"
    timeout "${LIMEN_SECONDS:-190}" python3 -m pytest -m gpu "$file" -v -rs --no-header --color=no -p no:cacheprovider 2>&1 |
      grep -v -E "^(INFO|WARNING|DEBUG|\(Engine)" | tail -n 120
  done
} | tee "$out/engines-conformance.txt"
grep -E "passed|failed|error" "$out/engines-conformance.txt"
