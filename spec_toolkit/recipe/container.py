"""What a `docker run` in front of a launch says: image, environment, GPUs, shared memory. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from spec_toolkit.engine.command_line.words import Word
from spec_toolkit.recipe.quantity import docker_bytes, docker_gpus
from spec_toolkit.recipe.shell import split_assignment

_TOOLS = {"docker", "podman", "nerdctl"}
_STARTS = {"run", "create", "exec"}
_COMPOSE = "compose"  # its words name a service
# Options that stand alone; any other takes the next word, or what is joined to it.
_ALONE = {"--rm", "--detach", "--interactive", "--tty", "--privileged", "--init", "--read-only", "--publish-all", "--no-healthcheck", "--oom-kill-disable", "--quiet", "--sig-proxy", "--replace", "--no-tty", "--no-TTY", "--no-deps", "--service-ports", "--build"}  # fmt: skip
_ALONE_SHORT = set("ditPqT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    image: str | None  # None: not said, as of a container that is entered by its name
    environment: Mapping[str, str] = field(default_factory=dict)
    gpus: int | None = None  # None: all, or not said
    shared_memory_bytes: int | None = None
    host_ipc: bool = False
    command: tuple[Word, ...] = ()  # behind the image


def read_container(words: Sequence[Word]) -> Container | None:
    """None where no container is started."""
    for number, word in enumerate(words[:-1]):
        if word.text.rpartition("/")[2] in _TOOLS:
            behind = [behind.text for behind in words[number + 1 : number + 3]]
            start = next((n for n, text in enumerate(behind) if text in _STARTS), None)
            if start is not None:
                has_image = behind[start] != "exec" and _COMPOSE not in behind[:start]
                return _read_options(words[number + start + 2 :], has_image=has_image)
    return None


def _read_options(words: Sequence[Word], *, has_image: bool) -> Container:
    """The first word behind the options is an image, or else the name of what runs already."""
    environment: dict[str, str] = {}
    said: dict[str, str] = {}
    at = 0
    while at < len(words) and words[at].text.startswith("-"):
        option, value, at = _option(words, at)
        if option in {"-e", "--env"}:
            name, given = split_assignment(value) or (value, "")
            environment[name] = given
        else:
            said[option] = value
    image = words[at] if at < len(words) else None
    return Container(
        image=None if image is None or image.unknown or not has_image else image.text,
        environment=environment,
        gpus=docker_gpus(said.get("--gpus", "")),
        shared_memory_bytes=docker_bytes(said.get("--shm-size", "")),
        host_ipc=said.get("--ipc") == "host",
        command=tuple(words[at + 1 :]),
    )


def _option(words: Sequence[Word], at: int) -> tuple[str, str, int]:
    """An option, its value, and where the next begins."""
    text = words[at].text
    behind = words[at + 1].text if at + 1 < len(words) else ""
    if text.startswith("--"):
        name, mark, value = text.partition("=")
        if mark or name in _ALONE:
            return name, value, at + 1
        return name, behind, at + 2
    for place, letter in enumerate(text[1:], start=1):
        if letter not in _ALONE_SHORT:
            joined = text[place + 1 :].removeprefix("=")
            return f"-{letter}", joined or behind, at + (1 if joined else 2)
    return text, "", at + 1
