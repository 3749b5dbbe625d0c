#!/bin/sh
# sh benchmarks/lab_cifar100.sh profile|prepare|extras DIR OUT [EFFORT] [MINUTES] [FIRST_SEED]
#
# CIFAR-100 on one GPU, in calls that may be as short as the machine allows; needs torch, Triton,
# NumPy, safetensors and Pillow. DIR holds CIFAR-100, OUT receives parcels (at most 4 of 15 MiB a
# call) that `python3 -m fastfill.lab unpack` puts into the cache of another machine.
#   profile   speed and correctness of the kernels, about 80 s
#   prepare   3 seeds, the most important models and maps first; call again until it says Done
#   extras    BCT and RACT also for the tables of the appendices
set -eu
verb=$1 data=$2 out=$3 effort=${4:-0.5} minutes=${5:-8.7} first=${6:-0}
export PYTHONPATH=src PYTHONUNBUFFERED=1
case $verb in
profile) python3 benchmarks/lab_training_speed.py --data "cifar100=$data" --out "$out" ;;
prepare) python3 -m fastfill.lab prepare all --data "cifar100=$data" --first-seed "$first" --seeds 3 \
    --effort "$effort" --minutes "$minutes" --without bct,ract --work .lab --out "$out" ;;
extras) python3 -m fastfill.lab prepare unseen architecture faces --data "cifar100=$data" \
    --first-seed "$first" --seeds 3 --effort "$effort" --minutes "$minutes" --work .lab --out "$out" ;;
esac
