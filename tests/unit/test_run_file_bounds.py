"""Run files that unpack to far more than they are: refused while they are read, in little memory."""

import gzip
import hashlib
import tracemalloc
from collections.abc import Iterable
from pathlib import Path

import pytest

from cadre_gateway.transfer import export
from cadre_gateway.transfer.export import PART_BYTES, BadRunFile, BlobPart, Header, encode_line
from cadre_gateway.transfer.import_run import check

MEBIBYTE = 1024 * 1024


def written(folder: Path, lines: Iterable[bytes]) -> Path:
    file = folder / "run.cadre"
    with gzip.open(file, "wb") as stream:
        stream.write(
            encode_line(Header(format="cadre-run", v=1, tree="t", exported_at=0.0, cadre="1", runs=1, entries=1))
        )
        for line in lines:
            stream.write(line)
    return file


def refused(file: Path, why: str) -> int:
    """The most memory that it took, in bytes."""
    tracemalloc.start()
    try:
        with pytest.raises(BadRunFile, match=why):
            check(file)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_blob_over_the_limit_is_refused_before_it_is_whole(tmp_path: Path) -> None:
    count = 70 * MEBIBYTE // PART_BYTES
    ref = f"blob:{hashlib.sha256(bytes(count * PART_BYTES)).hexdigest()}"
    parts = (encode_line(BlobPart(ref=ref, part=n, last=n == count - 1, data=bytes(PART_BYTES))) for n in range(count))
    file = written(tmp_path, parts)
    assert file.stat().st_size < MEBIBYTE
    assert refused(file, "more than 67108864 bytes") < 8 * MEBIBYTE


def test_a_file_that_unpacks_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "_FREELY_UNPACKED_BYTES", MEBIBYTE)
    missing = b'{"line":"missing","ref":"blob:' + b"a" * 10_000 + b'"}\n'
    assert refused(written(tmp_path, [missing] * 2_000), "more than 100 times its size") < 8 * MEBIBYTE


def test_a_line_of_millions_of_values_is_not_taken_apart(tmp_path: Path) -> None:
    line = b'{"line":"entry","seq":1,"entry":[' + b"[]," * (5 * MEBIBYTE) + b"[]]}\n"
    assert refused(written(tmp_path, [line]), "more values") < 60 * MEBIBYTE
