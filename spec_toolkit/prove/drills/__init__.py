"""Drills: something of a running deployment is broken while clients stream from it, and what became of them is told."""
