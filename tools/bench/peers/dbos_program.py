"""A durable delegation with DBOS on PostgreSQL: a workflow and its child in one process, three model calls as steps.

In one process, because workflows of two processes find each other by polling, which takes longer.
"""

import sys

from dbos import DBOS

from bench.peers.playing import MODEL_ANSWER, TASK, in_threads, serve


@DBOS.step()
def model(text: str) -> str:
    """Answer at once: what is left to measure is DBOS."""
    return MODEL_ANSWER


@DBOS.workflow()
def work(task: str) -> str:
    return model(task)


@DBOS.workflow()
def manage(task: str) -> str:
    model(task)
    report = DBOS.start_workflow(work, task).get_result()
    return model(report)


def delegate() -> None:
    """Raises RuntimeError unless the manager has answered."""
    if manage(TASK) != MODEL_ANSWER:
        raise RuntimeError("the manager did not answer")


if __name__ == "__main__":
    DBOS(config={"name": "peers", "system_database_url": sys.argv[1], "log_level": "ERROR"})
    DBOS.launch()
    serve(in_threads(delegate))
    DBOS.destroy()
