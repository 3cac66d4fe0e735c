"""Looks at a running engine once a second, decides, and sees to it that the engine does what was decided. A process of its own."""
