"""The journals that the bench of kept runs writes are those of runs."""

from itertools import accumulate
from pathlib import Path

from bench.scaling.kept_runs import Kept, template
from cadre.adapters.nats.blobs import NatsBlobs
from cadre.adapters.nats.connection.connect import connect
from cadre.adapters.nats.journal import NatsJournal
from cadre.adapters.nats.streams.provision import provision
from cadre.settings import Settings
from harness.nats_server import NatsServer


async def test_what_is_filled_in_reads_as_journals(tmp_path: Path) -> None:
    with NatsServer(tmp_path) as server:
        settings = Settings(nats_url=server.url, shards=1)
        nc = await connect(settings, "test")
        topology = await provision(nc, settings)
        journal = NatsJournal(nc, topology, NatsBlobs(nc, topology))
        here = Kept(server, None, None, journal)  # type: ignore[arg-type]
        await here.fill(range(20))
        for number in range(20):
            run = f"{number:032x}"
            stored = await journal.read(run, run)
            assert [one.entry.run for one in stored] == [run] * len(template())
            seqs = [[one.seq] for one in stored]
            assert [one.entry.earlier for one in stored] == [[], *accumulate(seqs)][:-1]
        await nc.close()
