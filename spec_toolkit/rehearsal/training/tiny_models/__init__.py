"""Tiny trained models of the families we deploy: one package per family, corpus, tokenizer and optimiser shared.

Imported as a top-level package: the training folder is on the path of whoever runs `train.py`, and nothing else is.
"""
