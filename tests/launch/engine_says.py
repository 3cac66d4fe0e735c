"""What the engine itself says of a launch, for tests of rules that claim to know it. One import of the engine for a whole run.

Say at a module's top what is to be asked, and ask in the test; the first test that asks has everything answered at once.

    LAUNCHES = {"a tree on flashinfer": engine_is_asked(Arguments(attention_backend="flashinfer", speculative_eagle_topk=2, ...))}

    @pytest.mark.engine
    @pytest.mark.parametrize("launch", LAUNCHES.values(), ids=LAUNCHES)
    def test_the_engine_would_refuse(launch):
        assert engine_answers(launch).outcome is Outcome.REFUSED
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import asdict, replace

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.facts.known import load_tables
from spec_toolkit.launch.resolve import resolve_many
from spec_toolkit.launch.resolving.questions import describe, model_files
from spec_toolkit.launch.resolving.records import Answer, Question

DEEPSEEK = "deepseek-ai/DeepSeek-V3-0324"
_OPEN: list[Question] = []
_ANSWERED: list[tuple[Question, Answer]] = []


def as_argv(asked: Arguments) -> tuple[str, ...]:
    """Every argument that says something, as the engine spells it."""
    argv: list[str] = []
    for name, value in asdict(asked).items():
        flag = "--" + name.replace("_", "-")
        if value is None or value is False or name == "others":
            continue
        if value is True:
            argv.append(flag)
        elif isinstance(value, tuple):
            argv += [flag, *map(str, value)]
        else:
            argv.append(f"{flag}={value}")
    return tuple(argv)


def engine_is_asked(
    arguments: Arguments,
    *,
    gpu: str = "h200",
    count: int = 8,
    target: Mapping[str, Any] | None = None,
    draft: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Question:
    """`target`, `draft`: keys of a config.json laid over the one that the tables have for the model asked for.

    Without a model path it is DeepSeek-V3, or the first of the tables with the architecture that `target` names.
    """
    tables = load_tables()
    asked = replace(arguments, model_path=arguments.model_path or _repository(target))
    if (asked.nnodes or 1) > 1 and asked.dist_init_addr is None:
        asked = replace(asked, dist_init_addr="127.0.0.1:20000")
    files = _files(asked.model_path, target)
    if asked.speculative_draft_model_path:
        files |= _files(asked.speculative_draft_model_path, draft)
    question = Question(
        argv=as_argv(asked),
        gpu=describe(gpu, tables.gpus.get(gpu), count=count),
        files=files,
        environment=environment or {},
    )
    to_be_asked(question)
    return question


def to_be_asked(*questions: Question) -> tuple[Question, ...]:
    """Of questions made elsewhere."""
    _OPEN.extend(questions)
    return questions


def engine_answers(question: Question) -> Answer:
    if _OPEN:
        asked = list(_OPEN)
        _ANSWERED.extend(zip(asked, resolve_many(asked), strict=True))
        _OPEN.clear()
    return next(answer for known, answer in _ANSWERED if known == question)


def _repository(target: Mapping[str, Any] | None) -> str:
    wanted = (target or {}).get("architectures", [None])[0]
    models = load_tables().models.values()
    return next((model.repo.v for model in models if model.architecture.v == wanted), DEEPSEEK)


def _files(repo: str | None, over: Mapping[str, Any] | None) -> dict[str, Any]:
    files = model_files(str(repo), load_tables())
    files[f"{repo}/config.json"] = files[f"{repo}/config.json"] | dict(over or {})
    return files
