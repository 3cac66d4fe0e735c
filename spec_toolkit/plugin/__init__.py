"""Runs inside the engine's processes, and carries nothing into them: the standard library and the lowest layer of ours only."""
