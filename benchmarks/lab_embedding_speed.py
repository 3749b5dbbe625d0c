"""PYTHONPATH=src python3 -m benchmarks.lab_embedding_speed [--out FILE]

Embedding speed of the laboratory's backbones at 32 pixels on one GPU: images per second of each
form of the network, augmentation included, how far each is from the network itself, and what the
time of the fastest goes to. Needs CUDA, torch and NumPy, nothing else.
"""

from __future__ import annotations

import argparse
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.shared.paths import DATA
from fastfill.lab.backbones import Backbone, Norm, build
from fastfill.lab.data.augment import AUGMENTATIONS, network_input
from fastfill.lab.embedding import SAMPLE, Embedder, FoldedBackbone
from fastfill.lab.training import Feed

NEEDS_GPU = True
NEEDS_DATA: tuple[str, ...] = ()

SHAPE = (32, 32, 3)
IMAGES = 50_000
FORMS: dict[str, tuple[torch.dtype, bool | None]] = {  # type; fused kernels, or not folded at all
    "fused": (torch.float16, True),
    "folded": (torch.float16, False),
    "module": (torch.bfloat16, None),
}


def frozen(name: str) -> Backbone:
    """A backbone with norms that have seen something; those that end a block start at zero."""
    torch.manual_seed(0)
    backbone = build(name, 128, SHAPE).cuda()
    for module in backbone.modules():
        if isinstance(module, Norm):
            torch.nn.init.uniform_(module.weight, 0.5, 1.0)
            module.var.uniform_(1.0, 2.0)
    return backbone.eval()


def measure(name: str, form: str, feed: Feed, batch: int, seconds: float = 2.0) -> dict[str, Any]:
    """Images per second, and the relative difference from the network in float32."""
    backbone = frozen(name)
    embedder = Embedder(backbone, feed, batch)
    embedder.dtype, fused = FORMS[form][0], FORMS[form][1]
    with torch.inference_mode():
        embedder.network = (
            backbone if fused is None else FoldedBackbone(backbone, embedder.dtype, fused)
        )
        sample = network_input(feed.pixels[:SAMPLE], feed.mean, feed.std, torch.float32)
        wanted = backbone(sample)
        error = float((embedder.network(sample.to(embedder.dtype)) - wanted).norm())
    begin = time.monotonic()
    rows = torch.arange(batch, device="cuda")
    embedder(rows, AUGMENTATIONS["shifted"])
    torch.cuda.synchronize()
    ready = time.monotonic() - begin
    rate = _rate(embedder, seconds)
    return {"backbone": name, "form": form, "batch": batch, "images_per_s": round(rate),
            "ready_s": round(ready, 1), "difference": error / float(wanted.norm())}  # fmt: skip


def _rate(embedder: Embedder, seconds: float) -> float:
    rows = torch.arange(IMAGES // embedder.batch * embedder.batch, device="cuda")
    done, start = 0, time.monotonic()
    while time.monotonic() - start < seconds:
        embedder(rows, AUGMENTATIONS["shifted"])
        torch.cuda.synchronize()
        done += len(rows)
    return done / (time.monotonic() - start)


def profile(name: str, feed: Feed) -> dict[str, float]:
    """Share of the longest kernels in the GPU time of one pass, in the form that is used."""
    embedder = Embedder(frozen(name), feed)
    rows = torch.arange(4 * embedder.batch, device="cuda")
    embedder(rows, AUGMENTATIONS["shifted"])
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as run:
        embedder(rows, AUGMENTATIONS["shifted"])
        torch.cuda.synchronize()
    times = {event.key[:90]: float(event.self_device_time_total) for event in run.key_averages()}
    total = sum(times.values())
    longest = sorted(times, key=lambda key: -times[key])[:15]
    return {key: round(times[key] / total, 3) for key in longest}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=DATA / "lab_embedding_speed.json")
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {
        "day": datetime.now(tz=UTC).date().isoformat(),
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }
    pixels = np.random.default_rng(0).integers(0, 256, (IMAGES, *SHAPE), dtype=np.uint8)
    feed = Feed.to_device(pixels, torch.device("cuda"))
    runs = [("resnet50", form, batch) for batch in (2_500, 5_000) for form in FORMS]
    for name, form, batch in [*runs, ("resnet18", "fused", 2_500)]:
        try:
            row = measure(name, form, feed, batch)
        except RuntimeError as error:  # a kernel that this cuDNN lacks
            row = {"backbone": name, "form": form, "batch": batch, "error": str(error)[:200]}
        results[f"{name} {form} b{batch}"] = row
        print(json.dumps(row), flush=True)
        given.out.write_text(json.dumps(results, indent=1))
    results["profile"] = profile("resnet50", feed)
    print(json.dumps(results["profile"], indent=1))
    given.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
