#!/usr/bin/env bash
# SmolLM2-135M with GRPO and SELF from the presets, sampled by transformers and by vLLM colocated: seconds per step.
#   bash benchmarks/train_gpu.sh OUT [STEPS]      (one GPU; vLLM only where it is installed)
# LIMEN_ALGORITHMS and LIMEN_ENGINES name fewer runs; what is in OUT already is kept and shown with them.
set -euo pipefail
out=${1:?folder for the runs}
steps=${2:-50}
engines=(transformers)
python -c "import vllm" 2>/dev/null && engines+=(vllm)
for algorithm in ${LIMEN_ALGORITHMS:-grpo self}; do
  for engine in ${LIMEN_ENGINES:-${engines[@]}}; do
    extra=()
    [ "$engine" = vllm ] && extra=(--set "vllm={mode: colocate, gpu_memory: 0.3}")
    python -m limen train "presets/smollm2-$algorithm.yaml" --out "$out/$algorithm-$engine" \
      --set "steps=$steps" --set "save_steps=$steps" "${extra[@]}"
  done
done
python - "$out" <<'PY'
import json, pathlib, statistics, sys

names = ("screen", "generate", "verify", "forward", "backward")
print(f"{'run':22}{'s/step':>8}" + "".join(f"{n:>10}" for n in names) + f"{'kept':>7}{'reward_batch':>14}")
for run in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    if not (run / "metrics.jsonl").exists():
        continue
    lines = [json.loads(x) for x in (run / "metrics.jsonl").read_text().splitlines()][1:]
    middle = lambda key: statistics.median(x.get(key, 0.0) for x in lines)
    parts = "".join(f"{middle('seconds/' + n):10.3f}" for n in names)
    print(f"{run.name:22}{middle('step_time'):8.3f}{parts}{middle('kept'):7.0f}{lines[-1]['reward_batch']:14.3f}")
PY
