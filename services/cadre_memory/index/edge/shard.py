"""One collection of the embedded engine. Every search has its filter on each leg."""

from pathlib import Path
from typing import Any, Self
from uuid import UUID

import qdrant_edge as edge

from cadre_memory.index import schema
from cadre_memory.index.filters import FilterClasses, PointSelector, condition_of, visible
from cadre_memory.index.store import PREFETCH, RRF_K, Point, PointRecord, Query, RecordPage, ScoredPoint
from cadre_memory.text.sparse import SparseVector

edge_filter = FilterClasses(
    edge, edge.RangeFloat, lambda ids: edge.HasIdCondition(point_ids={UUID(id) for id in ids})
).filter_of

_INDEXING_THRESHOLD_NEVER = 2**40
"""How many points make the engine build a graph: never, for every search is filtered to a few, and exact."""

_PAGE_POINTS = 1000


class Shard:
    """A collection that is open; not to be used after `close`.

    The engine raises RuntimeError; whether the operation has happened is unknown then.
    """

    def __init__(self, shard: edge.EdgeShard) -> None:
        self._shard = shard
        self.dirty = False
        """Whether something is not on the disk yet but in the log."""
        self.untidy = False
        """Whether points were replaced or removed, whose text is still in the files."""

    @classmethod
    def create(cls, folder: Path, dim: int | None) -> None:
        """Creates a collection in an empty place. It is complete when this returns."""
        shard = edge.EdgeShard.create(path=str(folder), config=_config(dim))
        for field in (schema.OWNER, *schema.KEYWORDS):
            _index(shard, field, edge.KeywordIndexParams(is_tenant=field == schema.OWNER))
        for field in schema.NUMBERS:
            _index(shard, field, edge.FloatIndexParams(is_principal=field == "created_at"))
        shard.flush()
        shard.close()

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Opens a collection that is there."""
        return cls(edge.EdgeShard.load(path=str(folder)))

    def upsert(self, points: list[Point], only_new: bool) -> None:
        """Stores points; with `only_new` leaves those as they are that are there."""
        mode = edge.UpdateMode.InsertOnly if only_new else edge.UpdateMode.Upsert
        self._update(
            edge.UpdateOperation.upsert_points(points=[_point(one) for one in points], update_mode=mode)
        )
        self.untidy = self.untidy or not only_new

    def set_dense(self, vectors: dict[str, list[list[float]]]) -> None:
        """Adds vectors to the points that are there: one that is not would fail the others with it."""
        found = self.scroll(PointSelector(ids=list(vectors)), len(vectors), None, ["hash"])
        if not found.records:
            return
        ids = [one.id for one in found.records]
        self._update(
            edge.UpdateOperation.update_vectors(
                point_vectors=[
                    edge.PointVectors(id=UUID(id), vector={schema.DENSE: vectors[id]}) for id in ids
                ]
            )
        )
        self._update(
            edge.UpdateOperation.set_payload(
                point_ids=[UUID(id) for id in ids], payload={"embed_state": "done"}
            )
        )
        self.untidy = True

    def search(self, query: Query, selector: PointSelector) -> list[ScoredPoint]:
        """Returns the best points first."""
        legs = self._legs(query, selector)
        wanted = edge_filter(condition_of(selector))
        if len(legs) == 1:
            using, vector, params = legs[0]
            request = edge.QueryRequest(
                query=edge.Query.Nearest(query=vector, using=using),
                filter=wanted,
                params=params,
                limit=query.limit,
                with_payload=True,
            )
        else:
            request = edge.QueryRequest(
                query=edge.Fusion.Rrf(k=RRF_K),  # type: ignore[arg-type]  # its stub forgets that this is a Fusion
                prefetches=[
                    edge.Prefetch(
                        query=edge.Query.Nearest(query=vector, using=using),
                        filter=wanted,
                        params=params,
                        limit=max(PREFETCH, query.limit),
                    )
                    for using, vector, params in legs
                ],
                filter=wanted,
                limit=query.limit,
                with_payload=True,
            )
        return [ScoredPoint(str(one.id), one.payload or {}, one.score) for one in self._shard.query(request)]

    def _legs(self, query: Query, selector: PointSelector) -> list[tuple[str, Any, edge.SearchParams]]:
        legs: list[tuple[str, Any, edge.SearchParams]] = []
        if query.dense is not None:
            legs.append((schema.DENSE, [query.dense], edge.SearchParams(exact=True)))
        if query.sparse is not None:
            corpus = None if selector.within is None else edge_filter(visible(selector.within))
            params = edge.SearchParams(idf=edge.IdfParams(corpus=corpus))
            legs.append((schema.SPARSE, _sparse(query.sparse), params))
        return legs

    def scroll(
        self, selector: PointSelector, limit: int, after: str | None, fields: list[str] | None
    ) -> RecordPage:
        """Returns points by id."""
        found, offset = self._shard.scroll(
            edge.ScrollRequest(
                filter=edge_filter(condition_of(selector)),
                limit=limit,
                offset=None if after is None else UUID(after),
                with_payload=True if fields is None else edge.PayloadSelector.Include(keys=fields),
                with_vector=False,
            )
        )
        records = [PointRecord(str(one.id), one.payload or {}) for one in found]
        return RecordPage(records, None if offset is None else str(offset))

    def count(self, selector: PointSelector) -> int:
        """Returns how many points there are."""
        return self._shard.count(edge.CountRequest(exact=True, filter=edge_filter(condition_of(selector))))

    def delete(self, selector: PointSelector) -> int:
        """Removes points by ids that were read with the filter: what is counted is what is removed."""
        gone = 0
        while found := self.scroll(selector, _PAGE_POINTS, None, ["hash"]).records:
            ids: list[int | UUID | str] = [UUID(one.id) for one in found]
            self._update(edge.UpdateOperation.delete_points(point_ids=ids))
            gone += len(ids)
        self.untidy = self.untidy or gone > 0
        return gone

    def flush(self) -> None:
        """Brings everything that is only in the log to the disk."""
        if self.dirty:
            self._shard.flush()
            self.dirty = False

    def vacuum(self) -> None:
        """Rewrites files with many dead points. It takes seconds for a hundred thousand."""
        if self.untidy:
            self._shard.optimize()
            self.untidy = False
            self.dirty = True

    def close(self) -> None:
        """Flushes and closes the collection."""
        self.flush()
        self._shard.close()

    def _update(self, operation: edge.UpdateOperation) -> None:
        self.dirty = True
        self._shard.update(operation)


def _config(dim: int | None) -> edge.EdgeConfig:
    vectors = {}
    if dim is not None:
        vectors[schema.DENSE] = edge.EdgeVectorParams(
            size=dim,
            distance=edge.Distance.Cosine,
            multivector_config=edge.MultiVectorConfig(comparator=edge.MultiVectorComparator.MaxSim),
            memory=edge.Memory.Cold,
        )
    return edge.EdgeConfig(
        vectors=vectors,
        sparse_vectors={schema.SPARSE: edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf)},
        hnsw_config=edge.HnswIndexConfig(m=0, ef_construct=16, full_scan_threshold=10_000),
        optimizers=edge.EdgeOptimizersConfig(
            deleted_threshold=0.1, vacuum_min_vector_number=1000, indexing_threshold=_INDEXING_THRESHOLD_NEVER
        ),
        payload_memory=edge.Memory.Cold,
    )


def _index(
    shard: edge.EdgeShard, field: str, params: edge.KeywordIndexParams | edge.FloatIndexParams
) -> None:
    shard.update(edge.UpdateOperation.create_field_index(field_name=field, schema=params))


def _point(point: Point) -> edge.Point:
    vector: dict[str, Any] = {schema.SPARSE: _sparse(point.sparse)}
    if point.dense:
        vector[schema.DENSE] = point.dense
    return edge.Point(id=UUID(point.id), vector=vector, payload=point.payload)


def _sparse(sparse: SparseVector) -> edge.SparseVector:
    return edge.SparseVector(indices=sparse.indices, values=sparse.values)
