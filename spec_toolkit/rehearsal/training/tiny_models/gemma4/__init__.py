"""Tiny Gemma 4: targets of three kinds (dense, experts, per-layer embeddings) and the assistants that draft for them."""
