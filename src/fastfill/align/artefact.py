"""The saved alignment: one `.safetensors` file, arrays plus JSON. Data, not code.

The metadata of the file holds one JSON document under the key `fastfill`, and in it the `sha256`
of everything else in the document and of all arrays, so that a damaged or edited file is noticed
before it is used. (One key, because safetensors writes several in no fixed order.)
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from fastfill.errors import ArtefactError
from fastfill.features import Matrix

FORMAT = 1


def fingerprint(arrays: dict[str, Matrix], document: str) -> str:
    """sha256 over the document and the arrays' names, shapes and bytes."""
    digest = hashlib.sha256(document.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}{array.dtype.str}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def pack(arrays: dict[str, Matrix], facts: dict[str, Any]) -> bytes:
    """The bytes of an artefact."""
    from safetensors.numpy import save

    document = {"format": FORMAT, **facts}
    document["sha256"] = fingerprint(arrays, json.dumps(document, sort_keys=True))
    return bytes(save(arrays, metadata={"fastfill": json.dumps(document, sort_keys=True)}))


def unpack(data: bytes, name: str) -> tuple[dict[str, Matrix], dict[str, Any]]:
    """The arrays and facts of an artefact, after checking that it is whole and ours."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        arrays = load(data)
        metadata = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
        facts = json.loads(metadata["fastfill"])
        version, expected = facts["format"], facts.pop("sha256")
    except (SafetensorError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise ArtefactError(
            f"{name}: is not an alignment, or is truncated. "
            "Make one with 'fastfill align', or copy the file again."
        ) from None
    if version != FORMAT:
        raise ArtefactError(
            f"{name}: has format version {version}, this FastFill reads version {FORMAT}. "
            "Use the FastFill that wrote it, or align again."
        )
    if fingerprint(arrays, json.dumps(facts, sort_keys=True)) != expected:
        raise ArtefactError(
            f"{name}: does not match its own checksum, it was damaged or changed. "
            "Copy the file again, or align again."
        )
    del facts["format"]
    return arrays, facts
