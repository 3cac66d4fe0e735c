"""The commands: load, ask, print, exit. No decision is made here."""
