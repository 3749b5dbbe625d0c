#!/usr/bin/env bash
# benchmarks/lab_gpu.sh SEED [EXPERIMENT...]
#
# One seed of the paper's experiments on CIFAR-100 and one GPU, within one call of ten minutes.
# Needs torch, NumPy, safetensors, click, rich and Pillow; nothing is installed or downloaded.
#
#   DATA     folder with CIFAR-100, carry/cifar100 by default
#   OUT      folder for what is to be brought back: SEED's results, one small JSON file for each
#            experiment, and the log
#   EFFORT   share of the recipe's 60 epochs, 0.8 by default: all tables of the first line below
#            fit into one call
#   MINUTES  when to stop, 9 by default; the same call goes on where it was, as long as .lab is kept
#   WITHOUT  models to leave out of all tables but main and top5, bct,ract by default; "" for none
#   VIEWS    views of each image, 20 by default; 0 learns maps from fixed features
#
# A first call that goes through everything in about two minutes:
#   EFFORT=0.03 MINUTES=4 benchmarks/lab_gpu.sh 99 sigma
#
# Tables that need only the old and the new model come first: they are there, whatever happens.
#   benchmarks/lab_gpu.sh 0                              # sigma flips ablation main top5
#   benchmarks/lab_gpu.sh 0 architecture unseen          # reuses the models of the first call
#   benchmarks/lab_gpu.sh 0 side-information bias faces
set -euo pipefail
cd "$(dirname "$0")/.."

seed=$1
shift
experiments=("$@")
[ $# -gt 0 ] || experiments=(sigma flips ablation main top5)
data=${DATA:-carry/cifar100} out=${OUT:-.lab/out} results=.lab/results
mkdir -p "$out"

status=0
PYTHONUNBUFFERED=1 PYTHONPATH=src python3 -m fastfill lab run "${experiments[@]}" \
    --data "cifar100=$data" --seeds 1 --first-seed "$seed" --device "${DEVICE:-cuda}" \
    --effort "${EFFORT:-0.8}" --views "${VIEWS:-20}" --without "${WITHOUT-bct,ract}" \
    --minutes "${MINUTES:-9}" --work .lab --results "$results" 2>&1 \
    | tee "$out/lab-seed$seed.log" || status=$?
for name in "${experiments[@]}"; do # also when something failed: what is done is done
    file=$results/cifar100/$name-seed$seed.json
    [ ! -f "$file" ] || cp "$file" "$out/"
done
exit "$status"
