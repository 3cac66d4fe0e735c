import json
from itertools import islice
from pathlib import Path

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import tokenizer as tiny
from tiny_models.batches import document_ids
from tiny_models.corpus import BUCKETS, documents
from tiny_models.prompts import Prompt, read_prompts, read_tokenizer, token_ids, write_prompts
from tokenizers import Tokenizer


@pytest.fixture(scope="module")
def tokenizer(model: Path) -> Tokenizer:
    return read_tokenizer(model)


@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_text_survives_encoding(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == tiny.BOS + text


@pytest.mark.parametrize("bucket", BUCKETS)
def test_every_document_survives_encoding(tokenizer: Tokenizer, bucket: str) -> None:
    for document in islice(documents(bucket, 9), 20):
        text = tiny.render(document.message) + document.answer
        ids = document_ids(tokenizer, document)
        assert tokenizer.decode(ids, skip_special_tokens=False) == tiny.BOS + text + tiny.EOS


def test_marks_are_one_token_each_and_stay_in_the_decoded_text(tokenizer: Tokenizer) -> None:
    for mark in tiny.MARKS:
        assert len(tokenizer.encode(mark, add_special_tokens=False).ids) == 1
        assert tokenizer.decode(tokenizer.encode(mark).ids) == mark


def test_special_ids_are_where_the_configuration_says(tokenizer: Tokenizer) -> None:
    ids = [tokenizer.token_to_id(token) for token in (tiny.BOS, tiny.EOS, tiny.PAD)]
    assert ids == [tiny.BOS_ID, tiny.EOS_ID, tiny.PAD_ID]
    assert tokenizer.get_vocab_size() == tiny.VOCABULARY


def test_digits_are_single_tokens(tokenizer: Tokenizer) -> None:
    assert [tokenizer.decode([i]) for i in tokenizer.encode("4711", add_special_tokens=False).ids] == list("4711")


def test_the_chat_template_renders_a_message_as_the_prompt_file_has_it(tokenizer: Tokenizer, model: Path) -> None:
    settings = json.loads((model / "tokenizer_config.json").read_text(encoding="utf-8"))
    template = jinja2.Environment(autoescape=False).from_string(settings["chat_template"])  # noqa: S701 - no HTML anywhere
    for prompt in read_prompts(model, per_bucket=2):
        messages = [{"role": "user", "content": prompt.message}]
        rendered = template.render(messages=messages, bos_token=settings["bos_token"], add_generation_prompt=True)
        assert tokenizer.encode(rendered, add_special_tokens=False).ids == token_ids(tokenizer, prompt)


def test_a_finished_turn_is_rendered_as_it_was_trained(tokenizer: Tokenizer) -> None:
    document = next(documents("chat", 0))
    turn = [{"role": "user", "content": document.message}, {"role": "assistant", "content": document.answer}]
    template = jinja2.Environment(autoescape=False).from_string(tiny.CHAT_TEMPLATE)  # noqa: S701 - no HTML anywhere
    rendered = template.render(messages=turn, bos_token=tiny.BOS, add_generation_prompt=False)
    assert tokenizer.encode(rendered, add_special_tokens=False).ids == document_ids(tokenizer, document)


def test_the_training_script_writes_the_committed_tokenizer(tmp_path: Path, model: Path) -> None:
    from tiny_models.deepseek_v3.config import Config
    from train import corpus_tokenizer

    tiny.write_tokenizer(corpus_tokenizer(), tmp_path, Config().max_position_embeddings)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / name).read_text(encoding="utf-8") == (model / name).read_text(encoding="utf-8")


def test_the_training_script_writes_the_committed_prompts(tmp_path: Path, model: Path) -> None:
    from train import held_out_prompts

    write_prompts(tmp_path, held_out_prompts())
    assert (tmp_path / "held_out.jsonl").read_bytes() == (model / "held_out.jsonl").read_bytes()


def test_prompts_are_read_bucket_by_bucket(tmp_path: Path) -> None:
    prompts = [Prompt("a", "1", "<1>"), Prompt("b", "2", "<2>"), Prompt("a", "3", "<3>")]
    write_prompts(tmp_path, prompts)
    assert read_prompts(tmp_path) == [prompts[0], prompts[2], prompts[1]]
    assert read_prompts(tmp_path, per_bucket=1) == [prompts[0], prompts[1]]


def test_at_least_a_hundred_prompts_in_five_equal_buckets_ship_with_the_model(model: Path) -> None:
    prompts = read_prompts(model)
    counts = {bucket: sum(p.bucket == bucket for p in prompts) for bucket in BUCKETS}
    assert len(prompts) >= 100
    assert len(set(counts.values())) == 1
