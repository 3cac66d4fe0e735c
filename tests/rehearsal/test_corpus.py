import json
import os
import re
import subprocess
import sys
from itertools import islice
from random import Random

import pytest
from tiny_models import corpus
from tiny_models.corpus import BUCKETS, documents, held_out_documents, is_held_out

each_bucket = pytest.mark.parametrize("bucket", BUCKETS)


@each_bucket
def test_a_held_out_message_is_never_trained_on(bucket: str) -> None:
    trained = {d.message for d in islice(documents(bucket, seed=0), 2000)}
    held_out = {d.message for d in held_out_documents(bucket, 24)}
    assert len(held_out) == 24
    assert not trained & held_out


@each_bucket
def test_about_one_message_in_eight_is_held_out(bucket: str) -> None:
    random = Random(5)
    held_out = sum(is_held_out(BUCKETS[bucket](random).message) for _ in range(2000))
    assert 0.08 < held_out / 2000 < 0.18


def test_another_process_with_another_hash_seed_generates_the_same_text(pytestconfig: pytest.Config) -> None:
    script = (
        "from tiny_models.corpus import *; from itertools import islice; import json;"
        "print(json.dumps([[d.message, d.answer] for b in BUCKETS for d in islice(documents(b, 3), 4)]))"
    )
    training = pytestconfig.rootpath / "spec_toolkit" / "rehearsal" / "training"

    def generated(hash_seed: str) -> object:
        environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(training)}
        return json.loads(subprocess.check_output([sys.executable, "-c", script], env=environment))

    here = [[d.message, d.answer] for bucket in BUCKETS for d in islice(documents(bucket, 3), 4)]
    assert generated("1") == generated("2") == here


def test_another_seed_generates_other_text() -> None:
    assert list(islice(documents("chat", 1), 5)) != list(islice(documents("chat", 2), 5))


def test_sums_are_right() -> None:
    for document in islice(documents("math", 0), 50):
        terms = [int(term) for term in re.findall(r"\d+", document.message)]
        assert document.answer.endswith(f"So the sum is {sum(terms)}.\n")


def test_code_compiles_and_uses_the_names_asked_for() -> None:
    for document in islice(documents("code", 0), 50):
        compile(document.answer, "answer", "exec")
        name, arguments, result = re.fullmatch(
            r"Write (\w+)\((.*)\) and name its result (\w+)\.", document.message
        ).groups()
        assert f"def {name}({arguments}):\n    {result} = " in document.answer


def test_a_tool_call_names_what_the_message_asks_for() -> None:
    for document in islice(documents("tool", 0), 50):
        call = re.search(r"```json\n(.*)\n```", document.answer)[1]
        values = [value for value in json.loads(call).values() if value in {*corpus.CITIES, *corpus.NOUNS}]
        assert values
        assert all(value in document.message for value in values)


def test_a_record_list_is_answered_by_its_first_eight_records() -> None:
    for document in islice(documents("long", 0), 20):
        assert document.message.splitlines()[1:9] == document.answer.splitlines()[:8]
