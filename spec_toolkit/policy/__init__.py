"""Decides about speculation at run time: what a window of telemetry says, and which mode follows. Pure; no clock, no I/O."""
