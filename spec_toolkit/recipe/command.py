"""What a pasted launch command asks for, as a record. Pure; a file that the command names is read by whoever can."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.engine.command_line.parse import Written
from spec_toolkit.engine.command_line.read import read_flags
from spec_toolkit.engine.command_line.say import shown
from spec_toolkit.engine.command_line.words import Word, visible
from spec_toolkit.engine.flags import LAUNCH_MODULE, SERVED_KIND, Flag
from spec_toolkit.engine.secrets import SECRET, is_secret_destination, is_secret_variable, without_secrets
from spec_toolkit.errors import Finding, RecipeError, refuse, warn
from spec_toolkit.recipe.config_file import merge_config
from spec_toolkit.recipe.container import Container, read_container
from spec_toolkit.recipe.image_tag import sglang_of
from spec_toolkit.recipe.quantity import visible_devices
from spec_toolkit.recipe.shell import Command, read_script, split_assignment

_DEEPEST = 4  # a bash -c in a bash -c ...
_MODULES = (LAUNCH_MODULE, f"-m{LAUNCH_MODULE}")

OpenFile = Callable[[str], bytes]  # raises RecipeError or OSError where there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLaunch:
    arguments: Arguments
    written: tuple[Written, ...] = ()  # in the order written; of a flag that is repeated, the last
    environment: Mapping[str, str] = field(default_factory=dict)  # set for the engine; secrets are "***"
    image: str | None = None  # of a container around it
    sglang: str | None = None  # the version that the image's tag names
    gpus: int | None = None  # that the command lets the engine see; None: not said
    shared_memory_bytes: int | None = None  # of /dev/shm, where a container says so
    host_ipc: bool = False  # the container has the host's /dev/shm
    findings: tuple[Finding, ...] = ()


def read_commands(text: str, *, open_file: OpenFile | None = None) -> tuple[CommandLaunch, ...]:
    """Every launch of a text; at least one, or RecipeError."""
    launches = tuple(_launches(text, {}, None, open_file, depth=0))
    if not launches:
        raise _no_launch(text)
    return launches


def first_launch(launches: Sequence[CommandLaunch]) -> CommandLaunch:
    """Where one is wanted and a text holds several, the first, which says so."""
    first, *others = launches
    if not others:
        return first
    found = f"holds {len(launches)} launches"
    finding = warn("command.several", "command", found, remedy="Only the first is looked at: paste each by itself.")
    return replace(first, findings=(*first.findings, finding))


def read_words(
    words: Sequence[Word], environment: Mapping[str, str], *, open_file: OpenFile | None = None
) -> tuple[CommandLaunch, ...]:
    """Of a command whose words are known, as a pod's are; empty where it launches no engine."""
    command = Command(tuple(words), environment)
    return tuple(_of_command(command, None, open_file, depth=0))


def _launches(
    text: str, environment: Mapping[str, str], container: Container | None, open_file: OpenFile | None, *, depth: int
) -> list[CommandLaunch]:
    script = read_script(text, environment)
    launches = [
        launch for command in script.commands for launch in _of_command(command, container, open_file, depth=depth)
    ]
    if launches and script.findings:
        launches[0] = replace(launches[0], findings=(*script.findings, *launches[0].findings))
    return launches


def _of_command(
    command: Command, around: Container | None, open_file: OpenFile | None, *, depth: int
) -> list[CommandLaunch]:
    container = read_container(command.words)
    words = command.words if container is None else container.command
    # Docker hands on what it is told to, and nothing of the shell it is started from.
    environment = dict(command.environment) if container is None else dict(container.environment)
    container = container or around
    place = _place_of_launch(words)
    if place is not None:
        return [_launch(words[place:], environment | _set_by(words[:place]), container, open_file)]
    if depth == _DEEPEST:
        return []
    # bash -c '…', ssh host '…', tmux new -d '…': the command is one of the words.
    return [
        launch
        for number, word in enumerate(words)
        if _holds_launch(word)
        for launch in _launches(word.text, environment | _set_by(words[:number]), container, open_file, depth=depth + 1)
    ]


def _set_by(words: Sequence[Word]) -> dict[str, str]:
    """Variables that the words in front of a launch set for it: A=1, env A=1."""
    pairs = ((word, split_assignment(word.text)) for word in words)
    return {pair[0]: "" if word.unknown else pair[1] for word, pair in pairs if pair}


def words_before(words: Sequence[Word]) -> Sequence[Word]:
    """Those in front of the launch, or of the text that holds one."""
    place = _place_of_launch(words)
    return words[: next((n for n, word in enumerate(words) if _holds_launch(word)), 0) if place is None else place]


def _place_of_launch(words: Sequence[Word]) -> int | None:
    return next((n for n in range(len(words)) if _begins_at(words, n)), None)


def _holds_launch(word: Word) -> bool:
    """As of bash -c '…'."""
    return " " in word.text and "sglang" in word.text


def _begins_at(words: Sequence[Word], place: int) -> bool:
    text = words[place].text
    if text in _MODULES or text.endswith("sglang/launch_server.py"):
        return True
    return text.rpartition("/")[2] == "sglang" and [word.text for word in words[place + 1 : place + 2]] == ["serve"]


def _launch(
    words: Sequence[Word], environment: dict[str, str], container: Container | None, open_file: OpenFile | None
) -> CommandLaunch:
    """`words` from the module or from `sglang` on."""
    served = len(words) > 1 and words[1].text == "serve"
    flags, findings = _serve_words(words[2:]) if served else (list(words[1:]), [])
    held, flags, more = merge_config(flags, open_file)
    asked = read_flags([*held, *flags])
    image = without_secrets(visible(container.image)) if container and container.image else None
    return CommandLaunch(
        arguments=asked.arguments,
        written=asked.written,
        environment=without_secret_values(environment),
        image=image,
        sglang=sglang_of(image),
        gpus=visible_devices(environment.get("CUDA_VISIBLE_DEVICES", "")) or (container.gpus if container else None),
        shared_memory_bytes=container.shared_memory_bytes if container else None,
        host_ipc=container.host_ipc if container else False,
        findings=(*findings, *more, *_open_secrets(flags), *asked.findings),
    )


def _open_secrets(words: Sequence[Word]) -> Iterator[Finding]:
    for word in words:
        flag = word.text.partition("=")[0]
        if flag.startswith("--") and is_secret_destination(flag[2:].replace("-", "_")):
            found, why = "stands in the command line", "whoever may list processes can read it"
            yield warn(
                "command.secret", flag, found, why, f"Put it into a file of mode 0600 and name that with {Flag.CONFIG}."
            )


def _serve_words(words: Sequence[Word]) -> tuple[list[Word], list[Finding]]:
    """`sglang serve MODEL` takes the model as its first word, and a backend of its own."""
    kept: list[Word] = []
    findings: list[Finding] = []
    rest = iter(words)
    for word in rest:
        name, mark, value = word.text.partition("=")
        if name != SERVED_KIND:
            kept.append(word)
            continue
        backend = value if mark else getattr(next(rest, None), "text", "")
        if backend not in {"auto", "llm"}:
            found = f"is '{shown(backend)}'; only language models are planned here"
            findings.append(refuse("command.no-language-model", SERVED_KIND, found))
    if kept and not kept[0].text.startswith("-"):
        kept.insert(0, Word(Flag.MODEL.value))
    return kept, findings


def without_secret_values(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        without_secrets(name): SECRET if is_secret_variable(name, value) else without_secrets(visible(value))
        for name, value in environment.items()
    }


def _no_launch(text: str) -> RecipeError:
    other = next((name for name in ("vllm", "trtllm-serve", "lmdeploy") if name in text), None)
    why = (
        f"it is a command of {other}" if other else f"neither 'python3 -m {LAUNCH_MODULE}' nor 'sglang serve' is in it"
    )
    return RecipeError.of("command.no-launch", "command", "launches no engine", why=why)
