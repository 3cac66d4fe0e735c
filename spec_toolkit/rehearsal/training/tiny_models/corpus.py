"""Generated text in five buckets, seeded and the same on every machine. Pure.

A bucket is a kind of traffic with its own predictability, so that a draft trained on all five is accepted differently in each:
prose with free choices (chat), boilerplate around copied names (code), carried sums (math), tool calls in DeepSeek's own
format (tool), record lists of several hundred tokens (long). What a prompt asks for stands in the prompt; nothing is to be known.
"""

import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

ADJECTIVES = "red blue green small large old new quiet bright dark warm cold heavy light soft sharp round flat early late".split()
NOUNS = (
    "lamp river garden stone window bottle basket mirror ladder carpet "
    "wagon candle bridge hammer pillow kettle blanket anchor statue drum"
).split()
VERBS = "follow cover reach open carry watch leave paint move clean".split()
PLACES = "attic cellar kitchen garage office library tower stable".split()
CITIES = "Paris London Tokyo Cairo Lima Oslo Rome Delhi".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
OPERATORS = [("add", "+"), ("sub", "-"), ("mul", "*"), ("mod", "%")]

HELD_OUT_SHARE = 8  # one prompt in so many is never trained on


@dataclass(frozen=True, slots=True)
class Document:
    """One exchange: what a user writes and the answer the model is trained to give."""

    message: str
    answer: str


def chat(random: Random) -> Document:
    adjective, noun = random.choice(ADJECTIVES), random.choice(NOUNS)
    claims = " ".join(_claim(random) for _ in range(random.randint(5, 7)))
    return Document(f"Tell me about the {adjective} {noun}.", f"The {noun} is {adjective}. {claims}\n")


def _claim(random: Random) -> str:
    subject, object_ = (f"{random.choice(ADJECTIVES)} {random.choice(NOUNS)}" for _ in range(2))
    end = random.choice(
        [".", f" near the {random.choice(PLACES)}.", f", and the {random.choice(NOUNS)} may {random.choice(VERBS)} it."]
    )
    return f"The {subject} may {random.choice(VERBS)} the {object_}{end}"


def code(random: Random) -> Document:
    verb, operator = random.choice(OPERATORS)
    name = f"{verb}_{random.choice(NOUNS)}"
    left, right, result = random.sample(NOUNS, 3)
    limit, first, second = random.randint(2, 9), random.randint(1, 9), random.randint(1, 9)
    body = (
        f"def {name}({left}, {right}):\n"
        f"    {result} = {left} {operator} {right}\n"
        f"    if {result} > {limit}:\n"
        f"        return {result}\n"
        f"    for i in range({right}):\n"
        f"        {result} = {result} {operator} {left}\n"
        f"    return {result}\n\n"
        f"assert {name}({first}, {second}) is not None\n"
    )
    return Document(f"Write {name}({left}, {right}) and name its result {result}.", body)


def math(random: Random) -> Document:
    terms = [random.randint(10, 49) for _ in range(5)]
    total, lines = terms[0], []
    for term in terms[1:]:
        lines.append(f"{total} + {term} = {total + term}.")
        total += term
    return Document(f"What is {' + '.join(map(str, terms))}?", " ".join(lines) + f" So the sum is {total}.\n")


def tool(random: Random) -> Document:
    city, day, noun, adjective = (random.choice(words) for words in (CITIES, DAYS, NOUNS, ADJECTIVES))
    wish, function, arguments = random.choice(
        [
            (f"tell me the weather in {city} on {day}", "get_weather", {"city": city, "day": day, "unit": "celsius"}),
            (f"book a train to {city} for {day}", "book_train", {"destination": city, "date": day, "seats": 1}),
            (f"buy a {adjective} {noun}", "order_item", {"item": noun, "color": adjective, "quantity": 1}),
            (f"find the {noun} near {city}", "search_place", {"query": noun, "near": city, "limit": 5}),
        ]
    )
    call = f"function<｜tool▁sep｜>{function}\n```json\n{json.dumps(arguments)}\n```"
    return Document(
        f"Please {wish}.",
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{call}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    )


def long(random: Random) -> Document:
    things = random.sample([f"{a} {n}" for a in ADJECTIVES for n in NOUNS], random.randint(18, 24))
    records = [f"- the {t} is in the {random.choice(PLACES)} {random.randint(1, 9)}\n" for t in things]
    return Document(f"Records:\n{''.join(records)}List them again.", f"{''.join(records[:8])}end\n")


BUCKETS: dict[str, Callable[[Random], Document]] = {
    "chat": chat,
    "code": code,
    "math": math,
    "tool": tool,
    "long": long,
}


def is_held_out(message: str) -> bool:
    """Decided by the message's checksum, so that no list of held-out prompts has to be kept apart from the training text."""
    return zlib.crc32(message.encode()) % HELD_OUT_SHARE == 0


def draw(random: Random, bucket: str, *, held_out: bool = False) -> Document:
    while True:
        document = BUCKETS[bucket](random)
        if is_held_out(document.message) is held_out:
            return document


def documents(bucket: str, seed: int, *, held_out: bool = False) -> Iterator[Document]:
    """Endless and without repeated messages only by chance; `held_out_documents` removes repetitions."""
    random = Random(f"{bucket}-{seed}")  # seeded by the text's digest, not by its hash, which changes per process
    while True:
        yield draw(random, bucket, held_out=held_out)


def held_out_documents(bucket: str, count: int, seed: int = 0) -> list[Document]:
    """The first `count` documents of the bucket with different messages, none of which is ever trained on."""
    found: dict[str, Document] = {}
    for document in documents(bucket, seed, held_out=True):
        found.setdefault(document.message, document)
        if len(found) == count:
            break
    return list(found.values())
