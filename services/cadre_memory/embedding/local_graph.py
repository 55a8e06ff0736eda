"""Builds the graph of all-MiniLM-L6-v2 for onnxruntime from its weights: token ids in, unit vectors out.

A BERT encoder of 6 layers with 12 heads over 384 dimensions; mean over the tokens that count, then length 1. The
same weights always give the same bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

LAYERS, HEADS, DIM = 6, 12, 384
_OPSET = 20
_IR = 9
_EPSILON = 1e-12


def build(weights: Path, target: Path) -> None:
    """Write the graph of the weights to `target`, atomically."""
    graph = _Graph(load_file(weights))
    _encoder(graph)
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"]) for name in ("ids", "mask")]
    outputs = [helper.make_tensor_value_info("vectors", TensorProto.FLOAT, ["batch", DIM])]
    made = helper.make_graph(graph.nodes, "minilm", inputs, outputs, graph.constants)
    model = helper.make_model(
        made, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR, producer_name="cadre"
    )
    onnx.checker.check_model(model)
    fresh = target.with_suffix(".new")
    fresh.write_bytes(model.SerializeToString(deterministic=True))
    fresh.replace(target)


class _Graph:
    """Collects nodes and constants; each node's output is named by its place."""

    def __init__(self, weights: dict[str, Any]) -> None:
        self._weights = weights
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._known: set[str] = set()

    def op(self, kind: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        output = output or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def constant(self, name: str, value: Any) -> str:
        if name not in self._known:
            self._known.add(name)
            self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def numbers(self, *values: int) -> str:
        return self.constant("i_" + "_".join(map(str, values)), np.array(values, dtype=np.int64))

    def weight(self, name: str, *, transposed: bool = False) -> str:
        found = self._weights[name].astype(np.float32)
        return self.constant(f"{name}.T" if transposed else name, found.T if transposed else found)

    def dense(self, x: str, name: str) -> str:
        product = self.op("MatMul", x, self.weight(f"{name}.weight", transposed=True))
        return self.op("Add", product, self.weight(f"{name}.bias"))

    def norm(self, x: str, name: str) -> str:
        scale, bias = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=_EPSILON)


def _encoder(g: _Graph) -> None:
    x = _embedded(g)
    counts = g.op("Cast", "mask", to=TensorProto.FLOAT)
    # What does not count is pushed out of every softmax.
    least = g.constant("least", np.float32(-1e9))
    missing = g.op("Sub", g.constant("one", np.float32(1)), counts)
    bias = g.op("Mul", g.op("Unsqueeze", missing, g.numbers(1, 2)), least)
    for layer in range(LAYERS):
        x = _layer(g, x, bias, f"encoder.layer.{layer}")
    weight = g.op("Unsqueeze", counts, g.numbers(2))
    total = g.op("ReduceSum", g.op("Mul", x, weight), g.numbers(1), keepdims=0)
    mean = g.op("Div", total, g.op("ReduceSum", weight, g.numbers(1), keepdims=0))
    length = g.op("ReduceL2", mean, g.numbers(1), keepdims=1)
    g.op("Div", mean, length, output="vectors")


def _embedded(g: _Graph) -> str:
    words = g.op("Gather", g.weight("embeddings.word_embeddings.weight"), "ids")
    length = g.op("Shape", "ids", start=1, end=2)
    positions = g.op("Slice", g.weight("embeddings.position_embeddings.weight"), g.numbers(0), length, g.numbers(0))
    kind = g.op("Gather", g.weight("embeddings.token_type_embeddings.weight"), g.constant("first", np.int64(0)))
    return g.norm(g.op("Add", g.op("Add", words, positions), kind), "embeddings.LayerNorm")


def _layer(g: _Graph, x: str, bias: str, name: str) -> str:
    shape = g.numbers(0, 0, HEADS, DIM // HEADS)
    heads = {
        part: g.op("Reshape", g.dense(x, f"{name}.attention.self.{part}"), shape) for part in ("query", "key", "value")
    }
    query = g.op("Transpose", heads["query"], perm=[0, 2, 1, 3])
    key = g.op("Transpose", heads["key"], perm=[0, 2, 3, 1])
    value = g.op("Transpose", heads["value"], perm=[0, 2, 1, 3])
    scale = g.constant("scale", np.float32((DIM // HEADS) ** -0.5))
    scores = g.op("Add", g.op("Mul", g.op("MatMul", query, key), scale), bias)
    mixed = g.op("MatMul", g.op("Softmax", scores, axis=-1), value)
    mixed = g.op("Reshape", g.op("Transpose", mixed, perm=[0, 2, 1, 3]), g.numbers(0, 0, DIM))
    attended = g.op("Add", g.dense(mixed, f"{name}.attention.output.dense"), x)
    x = g.norm(attended, f"{name}.attention.output.LayerNorm")
    wide = g.op("Gelu", g.dense(x, f"{name}.intermediate.dense"), approximate="none")
    return g.norm(g.op("Add", g.dense(wide, f"{name}.output.dense"), x), f"{name}.output.LayerNorm")
