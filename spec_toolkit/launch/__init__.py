"""One machine: from a plan to a running, checked engine, and the one process that owns it."""
