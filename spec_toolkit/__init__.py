"""Speculative decoding in production on SGLang: recipes, plans, patches, policy and proofs."""

__version__ = "0.1.0"
