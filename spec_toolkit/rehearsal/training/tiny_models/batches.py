"""What a training step sees: packed documents, or short repeated strings for the copy drill. Pure but for the generator it is given."""

from collections.abc import Sequence
from random import Random

import torch
from tokenizers import Tokenizer
from torch import Tensor

from tiny_models.corpus import BUCKETS, Document, draw
from tiny_models.tokenizer import BOS_ID, EOS_ID, render

LONG_SHARE = 0.3  # of batches made of record lists, one a row; the others pack short documents into rows half as long
LONG_SHAPE, SHORT_SHAPE = (
    (4, 384),
    (10, 192),
)  # rows, tokens: about as many tokens in both; attention costs rows x tokens squared
DRILL_ALPHABET = range(
    260, 361
)  # merges that exist in any vocabulary of 512; a fixed alphabet lets the copy circuit form sooner


def document_ids(tokenizer: Tokenizer, document: Document) -> list[int]:
    """bos, message, answer, eos."""
    text = render(document.message) + document.answer
    return [BOS_ID, *tokenizer.encode(text, add_special_tokens=False).ids, EOS_ID]


def packed(tokenizer: Tokenizer, random: Random) -> Tensor:
    """Documents end to end, each row cut at its length. Returns ids [rows, tokens] of one of the two shapes."""
    long = random.random() < LONG_SHARE
    rows, tokens = LONG_SHAPE if long else SHORT_SHAPE
    short = [bucket for bucket in BUCKETS if bucket != "long"]
    return torch.tensor([_packed_row(tokenizer, random, tokens, ["long"] if long else short) for _ in range(rows)])


def _packed_row(tokenizer: Tokenizer, random: Random, length: int, buckets: Sequence[str]) -> list[int]:
    ids: list[int] = []
    while len(ids) < length:
        ids += document_ids(tokenizer, draw(random, random.choice(buckets)))
    return ids[:length]


def copy_drill(random: Random, rows: int = 32, length: int = 48) -> Tensor:
    """Strings of 4 to 16 random tokens, each repeated to the row's end: only copying predicts them. Returns ids [rows, length]."""
    return torch.tensor([_drill_row(random, length) for _ in range(rows)])


def _drill_row(random: Random, length: int) -> list[int]:
    string = [random.choice(DRILL_ALPHABET) for _ in range(random.randint(4, 16))]
    return (string * length)[:length]
