"""Shorthand for findings, so that a rule reads as what it says. Pure."""

from spec_toolkit.errors import correct, note, refuse, warn

__all__ = ["correct", "note", "refuse", "warn"]
