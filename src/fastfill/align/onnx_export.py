"""An alignment as an ONNX graph: old vectors in, aligned vectors and their predicted error out.

Each function says in operators of ONNX what its namesake says in NumPy: `apply`, `scaling`,
`calibration`, `pair_distance`, `penalty`, `correction`. The tests hold the two together.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fastfill.align.alignment import Alignment
from fastfill.align.apply import TINY, Arrays
from fastfill.align.calibration import EXTREME, Calibration
from fastfill.align.correction import SURENESS, TOWARDS_CLASS, TOWARDS_LENGTH, Corrected, Correction
from fastfill.align.onnx_graph import Graph, Symbol
from fastfill.align.pair_distance import PairDistance
from fastfill.align.penalty import Penalty
from fastfill.align.scaling import Scaling
from fastfill.features import Matrix, Source, replacing

SMALLEST = float(np.finfo(np.float32).tiny)


def write_onnx(alignment: Alignment, path: Source, *, estimates: bool = False) -> None:
    """Write the map as an ONNX file, which appears only when it is whole; see `onnx_bytes`."""
    data = onnx_bytes(alignment, estimates=estimates)
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def onnx_bytes(alignment: Alignment, *, estimates: bool = False) -> bytes:
    """The map as ONNX: inputs `old` (and `side`), outputs `vectors` (n, d_new), `variance` (n,).

    `vectors` are what is served; with `estimates` they are without the distance penalty. What the
    library refuses, such as a zero vector under cosine, gives NaN.

    >>> from fastfill.features import Features, Pairs
    >>> old = np.random.default_rng(0).normal(size=(300, 8)).astype("float32")
    >>> fitted = Alignment.fit(Pairs(Features(old), Features(2 * old)), method="ridge")
    >>> import onnx
    >>> [output.name for output in onnx.load_from_string(onnx_bytes(fitted)).graph.output]
    ['vectors', 'variance']
    """
    graph = Graph()
    old = graph.input("old", alignment.old_dim)
    side = graph.input("side", alignment.side_dim) if alignment.side_dim else None
    h, served, variance = _mapped(alignment, old, side)
    vectors = h if estimates else served
    model = graph.model(
        {"vectors": (vectors, ["n", alignment.new_dim]), "variance": (variance.flat(), ["n"])},
        {
            "method": alignment.method,
            "distance": alignment.distance,
            "old model": str(alignment.facts.get("models", {}).get("old", "")),
            "new model": str(alignment.facts.get("models", {}).get("new", "")),
            "fingerprint": alignment.fingerprint,
            "penalised": str(served is not h and not estimates).lower(),
        },
    )
    return bytes(model.SerializeToString())


Mapped = tuple[Symbol, Symbol, Symbol]  # h, what is served (n, d_new), σ² (n, 1)


def _mapped(alignment: Alignment, old: Symbol, side: Symbol | None) -> Mapped:
    if isinstance(alignment, Corrected):
        means = [_mapped(base, old, side if base.side_dim else None)[0] for base in alignment.bases]
        total = means[0]
        for each in means[1:]:
            total = total + each
        return _corrected(alignment.correction, old, total / len(means))
    inputs = _inputs(alignment.scaling, old, side)
    raw, score = APPLY[alignment.method](alignment.arrays, inputs, alignment.side_dim)
    h = _outputs(alignment.scaling, raw)
    if alignment.pair_distance is not None:
        score = _pair_scores(alignment.pair_distance, score, h)
    variance = _calibrated(alignment.calibration, score)
    return h, _penalised(alignment.penalty, h, variance, alignment.head, h), variance


# --- units, error and penalty --------------------------------------------------------------------


def _inputs(scaling: Scaling, old: Symbol, side: Symbol | None) -> Symbol:
    directed = old / old.reduce("ReduceL2") if scaling.distance == "cosine" else old
    x = directed / scaling.old
    return x if side is None else x.beside(side / scaling.side)


def _outputs(scaling: Scaling, h: Symbol) -> Symbol:
    length = 1.0 if scaling.unit else scaling.length
    if length is None:
        return h * scaling.new
    return h / (h.reduce("ReduceL2") / length).maximum(SMALLEST)


def _calibrated(calibration: Calibration, score: Symbol) -> Symbol:
    log_error = score * calibration.slope + calibration.offset
    return log_error.maximum(-EXTREME).minimum(EXTREME).apply("Exp")


def _pair_scores(near: PairDistance, score: Symbol, h: Symbol) -> Symbol:
    """The nearest of the sample is that with the largest a·b − ‖b‖²/2."""
    among = near.sample.astype(np.float32)
    projected = (h - near.mean) @ near.directions
    closeness: Symbol = projected @ among.T - np.square(among).sum(1)[None] / 2
    squares = projected.squares() - closeness.reduce("ReduceMax") * 2
    own, distance = near.weights
    return score * own + squares.maximum(near.floor).apply("Log") * distance


def _penalised(
    penalty: Penalty | None, h: Symbol, variance: Symbol, head: Matrix | None, seen: Symbol
) -> Symbol:
    if penalty is None:
        return h
    errors = variance
    if penalty.error is not None and head is not None:
        errors = _small_margin(seen, head) * penalty.error
    moved = h + (errors * penalty.share).apply("Sqrt") * penalty.direction[None]
    return moved / moved.reduce("ReduceL2") if penalty.unit else moved


def _small_margin(vectors: Symbol, head: Matrix) -> Symbol:
    """1 − (p₁ − p₂) as (Σ of all but the first + the second) / Σ: exact where p₁ is near 1."""
    graph, classes = vectors.graph, len(head)
    logits = vectors @ head.T
    if classes == 1:
        return logits * 0
    powers = (logits - logits.reduce("ReduceMax")).apply("Exp")  # the first is 1
    best = graph.node("ArgMax", [logits], {"axis": 1})
    is_best = graph.node("Equal", [best, graph.constant(np.arange(classes)[None], np.int64)])
    others = graph.node("Where", [is_best, graph.constant(0.0), powers])
    rest = others.sum()
    return (rest + others.reduce("ReduceMax")) / (rest + 1)


# --- maps: inputs (n, d_in), the last `side_dim` of them side-information -> h, score (n, 1) ------


def _dense(x: Symbol, arrays: Arrays, name: str, relu: bool = True) -> Symbol:
    y = x @ arrays[f"{name}.weight"] + arrays[f"{name}.bias"]
    return y.apply("Relu") if relu else y


def _mean_score(log_variance: Symbol, dims: int, bound: float) -> Symbol:
    s = (log_variance / bound).apply("Tanh") * bound
    return s if dims == 1 else s.apply("Exp").reduce("ReduceMean").apply("Log")


def _linear(arrays: Arrays, x: Symbol, _: int) -> tuple[Symbol, Symbol]:
    h = _dense(x, arrays, "out", relu=False)
    centred = x - arrays["x.mean"]
    parts = (centred @ arrays["whiten"], centred, h - arrays["h.mean"])
    logs = [(part.squares() + TINY).apply("Log") for part in parts]
    weights = arrays["error.weight"]
    return h, logs[0].beside(*logs[1:]) @ weights[1:, None] + weights[0]


def _kernel(arrays: Arrays, x: Symbol, _: int) -> tuple[Symbol, Symbol]:
    centred = x - arrays["x.mean"]
    squares = centred.squares()
    inputs = centred.beside(squares * 0 + 1, squares)  # one product, as in `kernel_values`
    k = (inputs @ arrays["landmarks"]).apply("Exp")
    offset = k @ arrays["out.weight"]
    explained = k @ arrays["directions"]
    h = offset + arrays["out.bias"]
    variance = explained.squares() * -1.0 + 1.0
    features = variance.beside(offset.squares(), h.squares())
    logs = features.maximum(arrays["error.floor"]).apply("Log")
    weights = arrays["error.weight"]
    score = logs @ weights[1:4, None] + explained @ weights[4:, None] + weights[0]
    return h, score


def _residual(arrays: Arrays, x: Symbol, _: int) -> tuple[Symbol, Symbol]:
    hidden = _dense(_dense(x, arrays, "hidden.0"), arrays, "hidden.1")
    h = _dense(hidden, arrays, "out", relu=False) + x @ arrays["base.weight"]
    return h, _log_variance_score(arrays, hidden)


def _paper(arrays: Arrays, x: Symbol, side_dim: int) -> tuple[Symbol, Symbol]:
    old = arrays["first_branch.0.weight"].shape[0]
    first = x.columns(0, old)
    second = x.columns(old, old + side_dim) if side_dim else first
    halves = [
        _dense(_dense(part, arrays, f"{name}.0"), arrays, f"{name}.1")
        for name, part in (("first_branch", first), ("second_branch", second))
    ]
    trunk = _dense(halves[0].beside(halves[1]), arrays, "trunk.0")
    h = _dense(_dense(trunk, arrays, "trunk.1"), arrays, "out", relu=False)
    if "log_variance.weight" not in arrays:
        return h, h.sum() * 0
    return h, _log_variance_score(arrays, h)


def _log_variance_score(arrays: Arrays, inputs: Symbol) -> Symbol:
    log_variance = _dense(inputs, arrays, "log_variance", relu=False)
    dims = arrays["log_variance.weight"].shape[1]
    return _mean_score(log_variance, dims, float(arrays["bound"][0]))


APPLY: dict[str, Callable[[Arrays, Symbol, int], tuple[Symbol, Symbol]]] = {
    "ridge": _linear,
    "procrustes": _linear,
    "kernel": _kernel,
    "residual": _residual,
    "paper": _paper,
}

# --- maps that are corrected by a gallery's pairs ------------------------------------------------


def _corrected(correction: Correction, old: Symbol, h: Symbol) -> Mapped:
    units = correction.units
    _, left, variance = _mapped(correction.kernel, (old / units[0]).beside(h / units[1]), None)
    corrected = h + left
    placed = _placed(correction, corrected)
    served = _penalised(correction.penalty, placed, variance, correction.head, corrected)
    return placed, served, variance


def _placed(correction: Correction, vectors: Symbol) -> Symbol:
    lengths = vectors.reduce("ReduceL2").maximum(SMALLEST)
    if correction.length is None:
        return vectors / lengths
    if correction.head is not None and correction.means is not None:
        even = vectors / lengths * correction.length
        moved = _towards_classes(even, correction.head, correction.means)
        vectors = moved * (lengths / moved.reduce("ReduceL2"))
    # lengths⁻¹·length ≥ 0 to the power of ½
    return vectors * (lengths**-1.0 * correction.length) ** TOWARDS_LENGTH


def _towards_classes(vectors: Symbol, head: Matrix, means: Matrix) -> Symbol:
    logits = vectors @ head.T
    sure = vectors.graph.node("Softmax", [logits], {"axis": 1})
    weight = sure.reduce("ReduceMax") ** float(SURENESS) * TOWARDS_CLASS
    return (weight * -1.0 + 1.0) * vectors + weight * (sure @ means)
