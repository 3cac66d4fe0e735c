"""Which ports an engine takes besides the one it answers on. Pure.

Under attention data parallelism SGLang 0.5.23 counts them off from the HTTP port (srt/server_args.py, `PortArgs.init_new`): the
rendezvous at a fixed distance, and six more behind it. One that somebody else holds costs it thirty seconds and the start.
"""

DISTANCE = 233  # the engine's ZMQ_TCP_PORT_DELTA
DERIVED = 6  # the engine's NUM_DERIVED_PORTS without its Rust server
LAST_HTTP_PORT = 65_535 - DISTANCE - DERIVED  # above it the engine counts downwards


def ports_taken(http_port: int) -> tuple[int, ...]:
    """The HTTP port first; `http_port` is at most LAST_HTTP_PORT."""
    rendezvous = http_port + DISTANCE
    return (http_port, *range(rendezvous, rendezvous + DERIVED + 1))
