"""Proofs: what a deployment must show before anybody believes it."""
