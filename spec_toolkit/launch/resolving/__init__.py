"""Asks the engine's own resolver what it makes of a launch, in a process of its own, as if the described GPUs were there."""
