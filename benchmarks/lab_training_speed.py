"""PYTHONPATH=src python3 -m benchmarks.lab_training_speed [--data cifar100=DIR] [--out FILE]

Training speed of the laboratory's backbones at 32 pixels on one GPU: images per second, and what
the time goes to. Needs CUDA, torch, Triton and NumPy, nothing else.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from benchmarks.shared.paths import DATA
from fastfill.lab import norm_kernels as kernels
from fastfill.lab.backbones import Conv, Norm, build
from fastfill.lab.objectives import CrossEntropy
from fastfill.lab.recipes import RECIPES, Recipe
from fastfill.lab.training import Feed, _Step

NEEDS_GPU = True
NEEDS_DATA: tuple[str, ...] = ()

SHAPE = (32, 32, 3)
FAMILIES = {  # the first that matches names the family of a kernel
    "batch norm, residual, ReLU (Triton)": ("_forward_", "_backward_"),
    "weight update": ("fused_sgd", "multi_tensor"),
    "convolutions": ("conv", "xmma", "cutlass", "gemm", "wgrad", "dgrad", "fprop", "nvjet",
                     "cudnn", "splitk", "nhwc"),
    "loss and classifier": ("softmax", "nll", "LogSoftMax"),
    "augmentation": ("index", "gather", "randperm", "random", "distribution", "arange"),
}  # fmt: skip


def check_norm() -> float:
    """Largest relative error of the fused norm against PyTorch's, float32, values and gradients."""
    worst = 0.0
    for shape in ((64, 64, 32, 32), (32, 256, 16, 16), (16, 128, 5, 7)):
        for relu, residual, forked in ((1, 1, 1), (1, 0, 0), (0, 0, 0), (1, 0, 1)):
            y = torch.randn(shape, device="cuda").to(memory_format=torch.channels_last)
            y.requires_grad_()
            r = torch.randn(shape, device="cuda").to(memory_format=torch.channels_last)
            r.requires_grad_()
            w = torch.rand(shape[1], device="cuda", requires_grad=True)
            b = torch.randn(shape[1], device="cuda", requires_grad=True)
            k1, k2 = torch.randn_like(y), torch.randn_like(y)
            state = [torch.zeros(shape[1], device="cuda"), torch.ones(shape[1], device="cuda")]
            z, z2 = kernels.norm_act(
                y, r if residual else None, w, b, (state[0], state[1]), 0.1, 1e-5,
                relu=bool(relu), forked=bool(forked),
            )  # fmt: skip
            given = [y, w, b, *([r] if residual else [])]
            got = torch.autograd.grad((z * k1).sum() + (z2 * k2).sum(), given)
            want = functional.batch_norm(
                y, torch.zeros_like(b), torch.ones_like(b), w, b, True, 0.1, 1e-5
            )
            want = want + r if residual else want
            want = functional.relu(want) if relu else want
            expected = torch.autograd.grad((want * (k1 + k2)).sum(), given)
            for a, e in zip((z, *got), (want, *expected), strict=True):
                worst = max(worst, float((a - e).norm() / e.norm()))
    return worst


def tune_norm() -> list[dict[str, Any]]:
    """Memory rate of a forward and backward pass of the fused norm, for several tiles."""
    rows = []
    for channels, side in ((64, 32), (256, 32), (512, 8)):
        shape = (1024, channels, side, side)
        like = torch.channels_last
        y = torch.randn(shape, device="cuda", dtype=torch.bfloat16).to(memory_format=like)
        y.requires_grad_()
        w = torch.ones(channels, device="cuda", requires_grad=True)
        state = (torch.zeros(channels, device="cuda"), torch.ones(channels, device="cuda"))
        dz = torch.randn_like(y)
        for tile in ((64, 64, 4), (32, 64, 4), (128, 64, 8), (64, 64, 8), (32, 64, 2)):
            kernels._ROWS, kernels._COLUMNS, kernels._WARPS = tile

            def once(y: Any = y, w: Any = w, state: Any = state, dz: Any = dz) -> None:
                z, _ = kernels.norm_act(y, None, w, w, state, 0.1, 1e-5, relu=True)
                torch.autograd.grad(z, [y], dz)

            milliseconds = _time(once, 10)
            moved = 8 * y.numel() * 2  # bytes of the eight passes
            rows.append({"shape": shape, "tile": tile, "ms": milliseconds,
                         "TB/s": moved / milliseconds / 1e9})  # fmt: skip
    kernels._ROWS, kernels._COLUMNS, kernels._WARPS = 64, 64, 4
    return rows


def _time(once: Any, repeats: int) -> float:
    for _ in range(3):
        once()
    start, end = torch.cuda.Event(True), torch.cuda.Event(True)  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    start.record()
    for _ in range(repeats):
        once()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / repeats


def throughput(
    name: str, batch: int, feed: Feed, *, fused: bool = True, products: bool = False,
    seconds: float = 1.5, profile: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Images per second of whole training steps, augmentation and update included."""
    Norm.fused, Conv.products = fused, products
    count = len(feed.pixels)
    labels = np.arange(count) % 100
    recipe = Recipe(epochs=1, batch=batch, lr=0.1)
    torch.manual_seed(0)
    begin = time.monotonic()
    step = _Step(
        build(name, 128, SHAPE), CrossEntropy(100, 128), feed, np.arange(count), labels, recipe
    )
    step.prepare()
    torch.cuda.synchronize()
    ready = time.monotonic() - begin
    step.epoch(0, 0)
    done, start = 0, time.monotonic()
    while time.monotonic() - start < seconds:
        step.epoch(0, done)
        done += 1
    rate = done * step.images / (time.monotonic() - start)
    facts: dict[str, Any] = {
        "backbone": name, "batch": batch, "fused": fused, "products": products,
        "images_per_s": round(rate), "ready_s": round(ready, 1),
        "memory_GiB": round(torch.cuda.max_memory_allocated() / 2**30, 1),
    }  # fmt: skip
    if profile:
        facts["profile"] = _profile(step)
    return facts


def _profile(step: _Step) -> dict[str, Any]:
    """Share of each family of kernels in the GPU time of one epoch, and the longest kernels."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as run:
        step.epoch(0, 1)
        torch.cuda.synchronize()
    families: dict[str, float] = defaultdict(float)
    kernels_: dict[str, float] = {}
    for event in run.key_averages():
        spent = float(event.self_device_time_total)
        if spent == 0:
            continue
        kernels_[event.key[:110]] = spent
        family = next(
            (f for f, keys in FAMILIES.items() if any(k in event.key for k in keys)),
            "casts, copies and the rest",
        )
        families[family] += spent
    total = sum(families.values())
    return {
        "gpu_ms_per_step": total / 1000 / step.steps,
        "families": {f: round(t / total, 4) for f, t in sorted(families.items(), key=_second)},
        "kernels": {k: round(t / total, 4) for k, t in sorted(kernels_.items(), key=_second)[:40]},
    }


def _second(item: tuple[str, float]) -> float:
    return -item[1]


def learns(data: str, cache: Path) -> dict[str, Any]:
    """Real images: ResNet-18 for a few epochs must reach a sensible retrieval."""
    from fastfill.lab.data import load
    from fastfill.lab.embedding import embed
    from fastfill.lab.training import train

    begin = time.monotonic()
    images = load(data, cache)
    feed = Feed.to_device(images.train.pixels, torch.device("cuda"))
    loaded = time.monotonic() - begin
    torch.manual_seed(0)
    backbone = build("resnet18", 128, SHAPE)
    objective = CrossEntropy(100, 128)
    labels = images.train.labels
    recipe = RECIPES["small"].scaled(0.25)
    run = train(backbone, objective, feed, np.arange(len(labels)), labels, recipe)
    test = torch.from_numpy(np.array(images.test.pixels)).cuda()
    features = torch.from_numpy(embed(backbone, feed, test)).cuda()
    distances = torch.cdist(features, features).fill_diagonal_(float("inf"))
    truth = torch.from_numpy(images.test.labels).cuda()
    top1 = float((truth[distances.argmin(1)] == truth).float().mean())
    return {"load_s": loaded, "loss": run.loss, "images_per_s": run.images_per_s, "top1": top1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="cifar100=DIR: also train on real images")
    parser.add_argument("--out", type=Path, default=DATA / "lab_training_speed.json")
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {
        "day": datetime.now(tz=UTC).date().isoformat(),
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }
    results["packages"] = {
        name: find_spec(name) is not None for name in ("PIL", "numba", "scipy", "rich", "click")
    }

    def keep(key: str, value: Any) -> None:
        results[key] = value
        print(key, json.dumps(value), flush=True)
        given.out.write_text(json.dumps(results, indent=1))

    keep("norm_error", check_norm())
    keep("norm_tiles", tune_norm())
    pixels = np.random.default_rng(0).integers(0, 256, (50_000, *SHAPE), dtype=np.uint8)
    feed = Feed.to_device(pixels, torch.device("cuda"))
    keep("resnet50 b512", throughput("resnet50", 512, feed))
    keep("resnet18 b512", throughput("resnet18", 512, feed))
    if given.data:
        keep("learns", learns(given.data, Path(".lab") / "images"))
    keep("resnet50 b1024", throughput("resnet50", 1024, feed, profile=True))
    keep("resnet50 b256", throughput("resnet50", 256, feed))
    keep("resnet50 b512 products", throughput("resnet50", 512, feed, products=True, profile=True))
    keep("resnet18 b1024", throughput("resnet18", 1024, feed, profile=True))
    keep("resnet50 b1024 unfused", throughput("resnet50", 1024, feed, fused=False))


if __name__ == "__main__":
    main()
