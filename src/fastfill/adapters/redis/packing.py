"""Many values as two: one field of many hashes as the sizes of its values and the values as one.

The client spends far more on each value of an answer than on its bytes, and so does Redis on each
argument of a script.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fastfill.features import Matrix

# Lua: the same two functions. A missing value is `false`, and its size is -1.
PACKING = """
local function unpacked(sizes, data)
  local values, at = {}, 1
  for size in string.gmatch(sizes, '-?%d+') do
    local upto = at + size
    if upto < at then values[#values + 1] = false
    else values[#values + 1], at = string.sub(data, at, upto - 1), upto end
  end
  return values
end
local texts = {}  -- of numbers: to make one takes longer than to find it here
local function packed(values)
  local sizes, data = {}, {}
  for i = 1, #values do
    local value = values[i]
    local size = value and #value or -1
    texts[size] = texts[size] or tostring(size)
    sizes[i], data[i] = texts[size], value or ''
  end
  return {table.concat(sizes, ','), table.concat(data)}
end
"""


@dataclass(frozen=True)
class PackedValues:
    """Values, or None where there is none, as sizes and data.

    >>> PackedValues.of(["a", None, b"", "bc"])
    PackedValues(sizes=b'1,-1,0,2', data=b'abc')
    >>> PackedValues(sizes=b'1,-1,0,2', data=b'abc').values()
    [b'a', None, b'', b'bc']
    """

    sizes: bytes
    data: bytes

    @classmethod
    def of(cls, values: Sequence[bytes | str | None]) -> PackedValues:
        """Of values, texts as UTF-8."""
        data = [value.encode() if isinstance(value, str) else value for value in values]
        sizes = ",".join([str(-1 if value is None else len(value)) for value in data])
        return cls(sizes.encode(), b"".join([value for value in data if value]))

    @classmethod
    def of_vectors(cls, vectors: Matrix) -> PackedValues:
        """Of vectors (n, d) as hashes hold them."""
        sizes = ",".join([str(4 * vectors.shape[1])] * len(vectors))
        return cls(sizes.encode(), np.ascontiguousarray(vectors, dtype="<f4").tobytes())

    @classmethod
    def joined(cls, parts: Sequence[Sequence[bytes]]) -> PackedValues:
        """Of what several scripts have answered."""
        sizes = b",".join([part[0] for part in parts if part[0]])
        return cls(sizes, b"".join([part[1] for part in parts]))

    def values(self) -> list[bytes | None]:
        """One by one."""
        values: list[bytes | None] = []
        at = 0
        for size in map(int, self.sizes.split(b",") if self.sizes else ()):
            values.append(None if size < 0 else self.data[at : at + size])
            at += max(size, 0)
        return values

    def vectors(self, dim: int) -> Matrix:
        """(n, dim) with NaN where there is no vector, or one of another length."""
        count = self.sizes.count(b",") + 1 if self.sizes else 0
        if self.sizes == b",".join([b"%d" % (4 * dim)] * count):
            flat = np.frombuffer(bytearray(self.data), dtype="<f4")  # which can be written to
            return flat.reshape(count, max(dim, 1))
        return as_matrix(self.values(), dim)


def as_matrix(values: Sequence[bytes | None], dim: int) -> Matrix:
    """(n, dim) with NaN where there is no vector, or one of another length."""
    matrix = np.full((len(values), max(dim, 1)), np.nan, dtype=np.float32)
    for position, value in enumerate(values):
        if value is not None and len(value) == 4 * dim:
            matrix[position] = np.frombuffer(value, dtype="<f4")
    return matrix
