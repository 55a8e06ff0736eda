"""A Qdrant server as a store, through its client."""

import contextlib
import logging
import warnings
from collections.abc import AsyncIterator
from typing import Any, Self

from qdrant_client import AsyncQdrantClient, models
from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from cadre.adapters.http_options import http_options
from cadre_memory.bm25 import SparseVector
from cadre_memory.index import vector_index
from cadre_memory.index.vector_index import (
    PREFETCH,
    RRF_K,
    AllOf,
    AnyOf,
    Backend,
    Between,
    CollectionGone,
    Condition,
    Equal,
    Ids,
    IndexRefused,
    IndexUnavailable,
    Not,
    OneOf,
    Point,
    PointRecord,
    PointSelector,
    Query,
    RecordPage,
    ScoredPoint,
    Store,
    condition_of,
    visible,
)

log = logging.getLogger("cadre.memory")

_TIMEOUT_SECONDS = 30
"""Seconds that one answer may take."""

_PAGE_POINTS = 1000


class QdrantStore(Store):
    """A store on a Qdrant server."""

    backend: Backend = "server"

    def __init__(self, client: AsyncQdrantClient) -> None:
        self._client = client

    @classmethod
    def server(cls, url: str, api_key: str = "") -> Self:
        """Return a store on a server that is reached over REST: one port, regardless of what is in between."""
        if api_key and url.startswith("http://"):
            log.warning("the key of the Qdrant server travels in the open: https:// if it leaves this machine")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the client's way to say the same
            client = AsyncQdrantClient(
                url=url,
                api_key=api_key or None,
                timeout=_TIMEOUT_SECONDS,
                prefer_grpc=False,
                check_compatibility=False,
                **http_options(url),
            )
        return cls(client)

    async def version(self) -> tuple[int, ...]:
        """Return the server's version."""
        async with _translated_errors("asking for its version"):
            text = (await self._client.info()).version
        return tuple(int(part) for part in text.split("-")[0].split(".") if part.isdecimal())

    async def collections(self) -> list[str]:
        async with _translated_errors("listing collections"):
            return [one.name for one in (await self._client.get_collections()).collections]

    async def create(self, collection: str) -> None:
        doing = "creating a collection"
        async with _translated_errors(doing):
            try:
                async with _translated_errors(doing):
                    if not await self._client.collection_exists(collection):
                        await self._client.create_collection(collection, **collection_parameters(collection))
            except IndexRefused:
                # Another replica may have been faster.
                if not await self._client.collection_exists(collection):
                    raise
            for field, kind in payload_indexes().items():
                await self._client.create_payload_index(collection, field, kind, wait=True)

    async def drop(self, collection: str) -> None:
        with contextlib.suppress(CollectionGone):
            async with _translated_errors("dropping a collection"):
                await self._client.delete_collection(collection)

    async def aliases(self) -> dict[str, str]:
        async with _translated_errors("reading aliases"):
            found = await self._client.get_aliases()
        return {one.alias_name: one.collection_name for one in found.aliases}

    async def set_aliases(self, aliases: dict[str, str | None]) -> None:
        known = await self.aliases()
        changes: list[models.AliasOperations] = []
        for name, collection in aliases.items():
            if name in known:
                changes.append(models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=name)))
            if collection is not None:
                new = models.CreateAlias(collection_name=collection, alias_name=name)
                changes.append(models.CreateAliasOperation(create_alias=new))
        if changes:
            async with _translated_errors("switching aliases"):
                await self._client.update_collection_aliases(changes)

    async def upsert(self, collection: str, points: list[Point], *, only_new: bool = False) -> None:
        mode = models.UpdateMode.INSERT_ONLY if only_new else models.UpdateMode.UPSERT
        async with _translated_errors("storing points"):
            await self._client.upsert(collection, points=[_point(one) for one in points], wait=True, update_mode=mode)

    async def set_dense(self, collection: str, vectors: dict[str, list[list[float]]]) -> None:
        wanted = [models.PointVectors(id=id, vector={vector_index.DENSE: one}) for id, one in vectors.items()]
        async with _translated_errors("storing vectors"):
            # For one that is gone the engine fails, when it has stored all others.
            with contextlib.suppress(CollectionGone):
                async with _translated_errors("storing vectors"):
                    await self._client.update_vectors(collection, points=wanted, wait=True)
            # Only those that have their vectors: a point stored again meanwhile still waits.
            there = models.Filter(
                must=[
                    models.HasIdCondition(has_id=list(vectors)),
                    models.HasVectorCondition(has_vector=vector_index.DENSE),
                ]
            )
            await self._client.set_payload(collection, payload={"embed_state": "done"}, points=there, wait=True)

    async def search(self, collection: str, query: Query, selector: PointSelector) -> list[ScoredPoint]:
        wanted = rest_filter(condition_of(selector))
        legs = _legs(query, selector)
        async with _translated_errors("searching"):
            if len(legs) == 1:
                using, vector, params = legs[0]
                found = await self._client.query_points(
                    collection,
                    query=vector,
                    using=using,
                    query_filter=wanted,
                    search_params=params,
                    limit=query.limit,
                    with_payload=True,
                )
            else:
                found = await self._client.query_points(
                    collection,
                    query=models.RrfQuery(rrf=models.Rrf(k=RRF_K)),
                    prefetch=[
                        models.Prefetch(
                            query=vector,
                            using=using,
                            filter=wanted,
                            params=params,
                            limit=max(PREFETCH, query.limit),
                        )
                        for using, vector, params in legs
                    ],
                    query_filter=wanted,
                    limit=query.limit,
                    with_payload=True,
                )
        return [ScoredPoint(str(one.id), one.payload or {}, one.score) for one in found.points]

    async def scroll(
        self,
        collection: str,
        selector: PointSelector,
        *,
        limit: int,
        after: str | None = None,
        fields: list[str] | None = None,
    ) -> RecordPage:
        async with _translated_errors("reading points"):
            found, offset = await self._client.scroll(
                collection,
                scroll_filter=rest_filter(condition_of(selector)),
                limit=limit,
                offset=after,
                with_payload=True if fields is None else fields,
                with_vectors=False,
            )
        records = [PointRecord(str(one.id), one.payload or {}) for one in found]
        return RecordPage(records, None if offset is None else str(offset))

    async def count(self, collection: str, selector: PointSelector) -> int:
        async with _translated_errors("counting points"):
            return (await self._client.count(collection, rest_filter(condition_of(selector)), exact=True)).count

    async def delete(self, collection: str, selector: PointSelector) -> int:
        """Remove points by ids that were read with the filter: what is counted is what is removed."""
        gone = 0
        while records := (await self.scroll(collection, selector, limit=_PAGE_POINTS, fields=["hash"])).records:
            ids: list[Any] = [one.id for one in records]
            async with _translated_errors("removing points"):
                await self._client.delete(collection, models.PointIdsList(points=ids), wait=True)
            gone += len(ids)
        return gone

    async def close(self) -> None:
        await self._client.close()


def rest_filter(condition: Condition) -> models.Filter:
    """Return the condition as Qdrant's API has it."""
    return models.Filter(must=[_part(condition)])


def _part(condition: Condition) -> Any:
    match condition:
        case Equal(field, value):
            return models.FieldCondition(key=field, match=models.MatchValue(value=value))
        case OneOf(field, values):
            return models.FieldCondition(key=field, match=models.MatchAny(any=values))
        case Between(field, least, most):
            return models.FieldCondition(key=field, range=models.Range(gte=least, lte=most))
        case Ids(ids):
            return models.HasIdCondition(has_id=list(ids))
        case Not(part):
            return models.Filter(must_not=[_part(part)])
        case AnyOf(parts):
            return models.Filter(should=[_part(part) for part in parts])
        case AllOf(parts):
            return models.Filter(must=[_part(part) for part in parts])


def _legs(query: Query, selector: PointSelector) -> list[tuple[str, Any, models.SearchParams]]:
    legs: list[tuple[str, Any, models.SearchParams]] = []
    if query.dense is not None:
        legs.append((vector_index.DENSE, [query.dense], models.SearchParams()))
    if query.sparse is not None:
        corpus = None if selector.within is None else rest_filter(visible(selector.within))
        idf = None if corpus is None else models.IdfCorpusParams(corpus=corpus)
        legs.append((vector_index.SPARSE, _sparse(query.sparse), models.SearchParams(idf=idf)))
    return legs


def _point(point: Point) -> models.PointStruct:
    vector: dict[str, Any] = {vector_index.SPARSE: _sparse(point.sparse)}
    if point.dense:
        vector[vector_index.DENSE] = point.dense
    return models.PointStruct(id=point.id, vector=vector, payload=point.payload)


def _sparse(sparse: SparseVector) -> models.SparseVector:
    return models.SparseVector(indices=sparse.indices, values=sparse.values)


@contextlib.asynccontextmanager
async def _translated_errors(doing: str) -> AsyncIterator[None]:
    """Raise the client's failures as what the caller must do: IndexUnavailable, CollectionGone or IndexRefused."""
    try:
        yield
    except UnexpectedResponse as error:
        message = f"Qdrant answered {error.status_code} while {doing}: {error.content.decode(errors='replace')[:500]}"
        if error.status_code == 404:
            raise CollectionGone(message) from error
        if error.status_code is None or error.status_code >= 500 or error.status_code in (408, 429):
            raise IndexUnavailable(message) from error
        raise IndexRefused(message) from error
    except (ResponseHandlingException, ResourceExhaustedResponse) as error:
        raise IndexUnavailable(f"Qdrant did not answer while {doing}: {error}") from error


def collection_parameters(collection: str) -> dict[str, Any]:
    """Return the keywords of `create_collection`.

    One graph per owner (`m` is 0, `payload_m` is not): no search covers the memories of all owners. Filters on fields
    without an index are forbidden, so that a mistake fails in a test and not in a large collection.
    """
    dim = vector_index.dim_of(collection)
    return {
        "vectors_config": {} if dim is None else {vector_index.DENSE: _dense(dim)},
        "sparse_vectors_config": {
            vector_index.SPARSE: models.SparseVectorParams(
                modifier=models.Modifier.IDF, index=models.SparseIndexParams(on_disk=True)
            )
        },
        "on_disk_payload": True,
        "optimizers_config": models.OptimizersConfigDiff(deleted_threshold=0.1, vacuum_min_vector_number=1000),
        "strict_mode_config": models.StrictModeConfig(
            enabled=True,
            max_query_limit=_PAGE_POINTS,
            unindexed_filtering_retrieve=False,
            unindexed_filtering_update=False,
        ),
    }


def payload_indexes() -> dict[str, models.KeywordIndexParams | models.FloatIndexParams]:
    """Return the index of each indexed field; the owner is the tenant."""
    keyword, number = models.KeywordIndexType.KEYWORD, models.FloatIndexType.FLOAT
    return {
        vector_index.OWNER: models.KeywordIndexParams(type=keyword, is_tenant=True),
        **{field: models.KeywordIndexParams(type=keyword) for field in vector_index.KEYWORDS},
        **{
            field: models.FloatIndexParams(type=number, is_principal=field == "created_at")
            for field in vector_index.NUMBERS
        },
    }


def _dense(dim: int) -> models.VectorParams:
    return models.VectorParams(
        size=dim,
        distance=models.Distance.COSINE,
        on_disk=True,
        multivector_config=models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM),
        hnsw_config=models.HnswConfigDiff(m=0, payload_m=16, ef_construct=128),
        quantization_config=models.ScalarQuantization(
            scalar=models.ScalarQuantizationConfig(type=models.ScalarType.INT8, quantile=0.99, always_ram=True)
        ),
    )
