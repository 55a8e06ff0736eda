"""The sandbox: runs the Python that a model writes, as a coroutine that yields its tool calls to its caller.

    async with Sandbox() as sandbox:                     # zygote and pool of ready interpreters
        session = await sandbox.open()                   # one run's interpreter
        outcome = await session.execute(BlockRequest(code=…))  # Yielded | Finished | Failed | InterpreterLost
        while isinstance(outcome, Yielded):
            outcome = await session.resume([CallResult(value=…) for call in outcome.calls])

Two sides, two processes, and no trust between them:

- `interpreters/`, outside: `contract` has the requests and outcomes, `pool` the ready processes, `session` one run's
  interpreter, `zygote` the process that forks, `process` one forked process. Nothing there ever evaluates or
  unpickles what came from a model's code.
- `jail/`, inside, standard library and cloudpickle only: `zygote` forks, `jail` locks, `interpreter` serves. It is
  started with an environment of constants and no descriptor but its socket.
- `wire/` is what both sides know: frames, values, signatures, orders for jails, exit codes.
- `serving/` takes code calls from the bus.

docs/code-agents.md lists the guarantees for the code and against it.
"""
