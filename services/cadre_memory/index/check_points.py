"""Refuse wrong points and queries before an engine sees them.

An engine that fails halfway through a batch has already logged all of it: points that it refused appear after its
next start."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from cadre_memory.index.vector_index import (
    Chunk,
    IndexRefused,
    Vectors,
)
from cadre_memory.text.sparse import SparseVector

_MAX_NUMBER = 3.0e38
"""Numbers are stored in 32 bits."""

_TOKEN_IDS = range(2**32)


def check_points(points: Iterable[tuple[Chunk, Vectors]], dim: int | None) -> None:
    """Raises IndexRefused when a point cannot be stored in a collection of `dim` dimensions (None: words only)."""
    for chunk, vectors in points:
        check_id(chunk.id)
        _check_sparse(chunk.id, vectors.sparse)
        _check_number(chunk.id, "created_at", chunk.created_at)
        if chunk.expires_at is not None:
            _check_number(chunk.id, "expires_at", chunk.expires_at)
        if vectors.dense:
            _check_dense(chunk.id, vectors.dense, dim)
        elif chunk.embed_state == "done":
            raise IndexRefused(f"point {chunk.id} is said to have dense vectors and brings none")
        elif chunk.embed_state == "pending" and dim is None:
            raise IndexRefused(f"point {chunk.id} waits for dense vectors, and no embeddings are configured")


def check_dense(vectors: Mapping[str, list[list[float]]], dim: int | None) -> None:
    """Raises IndexRefused when dense vectors, given by the point's id, do not have `dim` dimensions each."""
    for id, windows in vectors.items():
        check_id(id)
        if not windows:
            raise IndexRefused(f"point {id} gets an empty list of dense vectors")
        _check_dense(id, windows, dim)


def check_query(sparse: SparseVector | None, dense: list[float] | None, dim: int | None) -> None:
    """Raises IndexRefused when a query cannot be searched for in a collection of `dim` dimensions."""
    if sparse is not None:
        _check_sparse("of the query", sparse)
    if dense is not None:
        _check_dense("of the query", [dense], dim)


def check_id(id: str) -> None:
    """Raises IndexRefused for anything but a UUID in its usual form."""
    try:
        usual = str(UUID(id))
    except ValueError:
        usual = ""
    if usual != id:
        raise IndexRefused(f"{id!r} is no id of a point: it must be a UUID such as {UUID(int=1)}")


def _check_dense(id: str, windows: list[list[float]], dim: int | None) -> None:
    if dim is None:
        raise IndexRefused(f"point {id} brings dense vectors, and no embeddings are configured")
    for vector in windows:
        if len(vector) != dim:
            raise IndexRefused(f"point {id}: a dense vector of {len(vector)} numbers, must be {dim}")
        _check_numbers(id, vector)
        if not any(vector):
            raise IndexRefused(f"point {id}: a dense vector of zeros points nowhere")


def _check_sparse(id: str, sparse: SparseVector) -> None:
    if len(sparse.indices) != len(sparse.values):
        raise IndexRefused(
            f"point {id}: {len(sparse.indices)} token ids and {len(sparse.values)} weights, must be as many"
        )
    if len(set(sparse.indices)) != len(sparse.indices):
        raise IndexRefused(f"point {id}: a token id stands twice in its sparse vector")
    if not all(index in _TOKEN_IDS for index in sparse.indices):
        raise IndexRefused(f"point {id}: token ids must be from 0 to {_TOKEN_IDS.stop - 1}")
    _check_numbers(id, sparse.values)


def _check_numbers(id: str, numbers: list[float]) -> None:
    # Not a number fails the comparison too.
    if not all(-_MAX_NUMBER <= number <= _MAX_NUMBER for number in numbers):
        raise IndexRefused(f"point {id}: a vector holds a number that is not finite")


def _check_number(id: str, field: str, number: float) -> None:
    if not -_MAX_NUMBER <= number <= _MAX_NUMBER:
        raise IndexRefused(f"point {id}: {field} is not a finite number")
