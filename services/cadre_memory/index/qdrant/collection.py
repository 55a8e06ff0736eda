"""The parameters of a collection on a Qdrant server (and in the client's own engine, which uses only the vectors)."""

from typing import Any

from qdrant_client import models

from cadre_memory.index import schema

_MAX_PAGE_POINTS = 1000


def collection_parameters(collection: str) -> dict[str, Any]:
    """Returns the keywords of `create_collection`.

    One graph per owner (`m` is 0, `payload_m` is not): nobody searches over everybody's memories. Filters on fields
    without an index are forbidden, so that a mistake fails in a test and not in a large collection.
    """
    dim = schema.dim_of(collection)
    return {
        "vectors_config": {} if dim is None else {schema.DENSE: _dense(dim)},
        "sparse_vectors_config": {
            schema.SPARSE: models.SparseVectorParams(
                modifier=models.Modifier.IDF, index=models.SparseIndexParams(on_disk=True)
            )
        },
        "on_disk_payload": True,
        "optimizers_config": models.OptimizersConfigDiff(
            deleted_threshold=0.1, vacuum_min_vector_number=1000
        ),
        "strict_mode_config": models.StrictModeConfig(
            enabled=True,
            max_query_limit=_MAX_PAGE_POINTS,
            unindexed_filtering_retrieve=False,
            unindexed_filtering_update=False,
        ),
    }


def payload_indexes() -> dict[str, models.KeywordIndexParams | models.FloatIndexParams]:
    """Returns the index of each indexed field; the owner is the tenant."""
    keyword, number = models.KeywordIndexType.KEYWORD, models.FloatIndexType.FLOAT
    return {
        schema.OWNER: models.KeywordIndexParams(type=keyword, is_tenant=True),
        **{field: models.KeywordIndexParams(type=keyword) for field in schema.KEYWORDS},
        **{
            field: models.FloatIndexParams(type=number, is_principal=field == "created_at")
            for field in schema.NUMBERS
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
            scalar=models.ScalarQuantizationConfig(
                type=models.ScalarType.INT8, quantile=0.99, always_ram=True
            )
        ),
    )
