"""The words of a pod's container and what they launch, with variables put in as Kubernetes does. Pure."""

import re
from collections.abc import Iterator, Sequence

from spec_toolkit.engine.command_line.say import shown
from spec_toolkit.engine.command_line.words import Word
from spec_toolkit.engine.secrets import without_secrets
from spec_toolkit.errors import Finding, RecipeError, refuse
from spec_toolkit.recipe.command import CommandLaunch, read_words, words_before
from spec_toolkit.recipe.documents import Node
from spec_toolkit.recipe.image_tag import sglang_of

_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][\w.-]*)\)")
_SHELL_VARIABLE = re.compile(r"\$(\{?[A-Za-z_]\w*\}?)")
_SHELLS = {"bash", "sh", "dash", "zsh", "ash"}
_MOST_MADE = 256 * 1024  # characters that a container's variables may grow its words to


class Variables:
    """Literal values of a container's environment, and how Kubernetes puts them into its words."""

    def __init__(self, where: str) -> None:
        self.values: dict[str, str] = {}
        self._where = where
        self._made = 0

    def word(self, text: str) -> Word:
        """References to variables that the object does not hold the value of stay, and are not known."""
        unknown = False

        def put_in(match: re.Match[str]) -> str:
            nonlocal unknown
            if match[1] is None:
                return "$"
            unknown |= match[1] not in self.values
            value = self.values.get(match[1], match[0])
            self._made += len(value)
            if self._made > _MOST_MADE:
                raise RecipeError.of("manifest.form", self._where, "grows too large with its variables put in")
            return value

        return Word(_REFERENCE.sub(put_in, text), unknown)


def environment_of(container: Node, where: str) -> Variables:
    """Those that nothing else holds the value of."""
    variables = Variables(where)
    for node in container.each("env"):
        if node.get("valueFrom") is None:
            variables.values[node.text("name") or ""] = variables.word(node.text("value") or "").text
    return variables


def launches_of(container: Node, variables: Variables, where: str) -> Iterator[CommandLaunch]:
    """What the container's words launch; Kubernetes itself puts variables in for $(NAME), and a shell is there only if it is named."""
    nodes = [*container.each("command"), *container.each("args")]
    words = [variables.word(node.raw) for node in nodes]
    image = without_secrets(container.text("image") or "") or None
    has_shell = any(word.text.rpartition("/")[2] in _SHELLS for word in words_before(words))
    for launch in read_words(words, variables.values):
        literal = [] if has_shell else list(_literal_variables(nodes, where))
        yield CommandLaunch(
            arguments=launch.arguments,
            written=launch.written,
            environment=launch.environment,
            image=image,
            sglang=sglang_of(image),
            gpus=launch.gpus,
            findings=(*literal, *launch.findings),
        )


def _literal_variables(nodes: Sequence[Node], where: str) -> Iterator[Finding]:
    for node in nodes:
        name = _SHELL_VARIABLE.search(node.raw)
        if name and "$$" not in node.raw:
            found = f"'{shown(name[0])}' stands in the container's words, and no shell is there to put its value in"
            remedy = f"Write $({name[1].strip('{}')[:60]}), which Kubernetes expands."
            yield refuse("manifest.no-shell", f"{where}:{node.line}", found, remedy=remedy)
