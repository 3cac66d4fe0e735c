"""A byte-level BPE of 512 tokens, with DeepSeek's special tokens and chat template."""

import json
import re
from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

VOCABULARY = 512
BOS, EOS, PAD = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"
USER, ASSISTANT = "<｜User｜>", "<｜Assistant｜>"
# Not special: a detokenizer leaves special tokens out of the text, and the engine's tool and reasoning parsers read these from it.
MARKS = (
    USER,
    ASSISTANT,
    "<think>",
    "</think>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>",
)
BOS_ID, EOS_ID, PAD_ID = 0, 1, 2

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'user' %}" + USER + "{{ message['content'] }}"
    "{% elif message['role'] == 'assistant' %}" + ASSISTANT + "{{ message['content'] or '' }}" + EOS + ""
    "{% else %}{{ message['content'] }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}" + ASSISTANT + "{% endif %}"
)


def render(message: str) -> str:
    """What the chat template makes of one user message, without the leading bos, which encoding adds."""
    return f"{USER}{message}{ASSISTANT}"


def train_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """Digits stay single tokens, so that a sum is carried digit by digit. Encoding adds bos, as the real tokenizer does."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(MARKS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[BOS, EOS, PAD],
        show_progress=False,
    )
    # The trainer does not know the marks yet: left in the text they would be learnt as merges and waste the vocabulary.
    mark = re.compile("|".join(map(re.escape, MARKS)))
    tokenizer.train_from_iterator((part for text in texts for part in mark.split(text)), trainer)
    tokenizer.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in MARKS])
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, BOS_ID)])
    return tokenizer


def write_tokenizer(tokenizer: Tokenizer, folder: Path, max_tokens: int) -> None:
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": PAD,
        "model_max_length": max_tokens,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    text = json.dumps(settings, indent=1, ensure_ascii=False)
    (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")
