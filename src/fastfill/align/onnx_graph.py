"""ONNX graphs written as sums and products: `Symbol` stands for an array that is not there yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastfill.errors import MissingExtraError

try:
    import onnx
    from onnx import TensorProto, checker, helper, numpy_helper
except ImportError as error:
    raise MissingExtraError("onnx", "onnx", "Writing an ONNX file") from error

OPSET = 17  # what runtimes of the last years read, those of browsers too
IR_VERSION = 8


class Graph:
    """Collects the nodes and the constants of one ONNX graph; everything is float32.

    >>> graph = Graph()
    >>> x = graph.input("x", 2)
    >>> model = graph.model({"y": ((x * 2).sum(), ["n", 1])}, {"made by": "an example"})
    >>> [node.op_type for node in model.graph.node]
    ['Mul', 'ReduceSum', 'Identity']
    """

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []

    def input(self, name: str, dim: int) -> Symbol:
        """An input of (n, dim)."""
        self._inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", dim]))
        return Symbol(self, name)

    def constant(self, value: ArrayLike, kind: type[Any] = np.float32) -> Symbol:
        """An array that is kept in the file."""
        name = f"c{len(self._constants)}"
        array = np.ascontiguousarray(np.asarray(value, dtype=kind))
        array = array.reshape(np.shape(value))  # NumPy makes a scalar one-dimensional
        self._constants.append(numpy_helper.from_array(array, name))
        return Symbol(self, name)

    def node(
        self, op: str, inputs: Sequence[Symbol], attributes: Mapping[str, Any] | None = None
    ) -> Symbol:
        """The result of an operator of ONNX."""
        name = f"v{len(self._nodes)}"
        names = [symbol.name for symbol in inputs]
        self._nodes.append(helper.make_node(op, names, [name], **(attributes or {})))
        return Symbol(self, name)

    def model(
        self, outputs: Mapping[str, tuple[Symbol, list[str | int]]], metadata: Mapping[str, str]
    ) -> Any:
        """The checked model, its outputs under these names and of these shapes."""
        infos = []
        for name, (symbol, shape) in outputs.items():
            self._nodes.append(helper.make_node("Identity", [symbol.name], [name]))
            infos.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        graph = helper.make_graph(self._nodes, "fastfill", self._inputs, infos, self._constants)
        opset = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opset, producer_name="fastfill")
        model.ir_version = IR_VERSION
        helper.set_model_props(model, dict(metadata))
        if model.ByteSize() < onnx.checker.MAXIMUM_PROTOBUF:
            checker.check_model(model, full_check=True)
        return model


class Symbol:
    """An array of a graph; rows are items, so that sums and the like go along the columns."""

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph, self.name = graph, name

    def _with(self, op: str, other: Symbol | ArrayLike) -> Symbol:
        right = other if isinstance(other, Symbol) else self.graph.constant(other)
        return self.graph.node(op, [self, right])

    def __add__(self, other: Symbol | ArrayLike) -> Symbol:
        return self._with("Add", other)

    def __sub__(self, other: Symbol | ArrayLike) -> Symbol:
        return self._with("Sub", other)

    def __mul__(self, other: Symbol | ArrayLike) -> Symbol:
        return self._with("Mul", other)

    def __truediv__(self, other: Symbol | ArrayLike) -> Symbol:
        return self._with("Div", other)

    def __pow__(self, other: Symbol | ArrayLike) -> Symbol:
        return self._with("Pow", other)

    def __matmul__(self, other: Symbol | ArrayLike) -> Symbol:
        return self._with("MatMul", other)

    def maximum(self, other: Symbol | ArrayLike) -> Symbol:
        """The larger one of two, number by number."""
        return self._with("Max", other)

    def minimum(self, other: Symbol | ArrayLike) -> Symbol:
        """The smaller one of two, number by number."""
        return self._with("Min", other)

    def apply(self, op: str) -> Symbol:
        """An operator without options: Exp, Log, Sqrt, Tanh, Relu."""
        return self.graph.node(op, [self])

    def sum(self) -> Symbol:
        """(n, 1) from (n, d)."""
        return self.graph.node("ReduceSum", [self, self.graph.constant([1], np.int64)])

    def reduce(self, op: str) -> Symbol:
        """(n, 1) from (n, d) by ReduceMax, ReduceMean or ReduceL2."""
        return self.graph.node(op, [self], {"axes": [1]})

    def squares(self) -> Symbol:
        """(n, 1): the squared length of each row."""
        return (self * self).sum()

    def columns(self, start: int, stop: int) -> Symbol:
        """Some of the columns."""
        edges = [self.graph.constant([edge], np.int64) for edge in (start, stop, 1)]
        return self.graph.node("Slice", [self, *edges])

    def beside(self, *others: Symbol) -> Symbol:
        """This and others in one, column by column."""
        return self.graph.node("Concat", [self, *others], {"axis": 1})

    def flat(self) -> Symbol:
        """(n,) from (n, 1)."""
        return self.graph.node("Squeeze", [self, self.graph.constant([1], np.int64)])
