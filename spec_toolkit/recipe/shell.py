"""Splits a pasted piece of shell into its commands, as a shell would, and executes nothing. Pure.

Variables that the text itself sets are put in; what a variable of the reader's shell or a `$(command)` would give is unknown, and a word
that holds it says so. Quotes, backslashes, comments, arrays, `&&`, pipes and redirections mean what they mean in bash. Two slips that cut
a command in two are mended, with a finding: a blank behind the backslash at the end of a line, and a comment between two such lines.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from spec_toolkit.engine.command_line.words import Word
from spec_toolkit.errors import Finding, RecipeError, correct
from spec_toolkit.recipe.pasted import plain_text
from spec_toolkit.recipe.quotes import unclosed, without_quotes

LARGEST_CHARACTERS = 64 * 1024
_MOST_MADE = 512 * 1024  # characters that variables may grow the text to
_BLANK_AFTER_BACKSLASH = re.compile(r"\\[ \t]+(?=\n)")
_NAME = re.compile(r"[A-Za-z_]\w*")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_PARAMETER = re.compile(r"([A-Za-z_]\w*)(?:\[[@*]\])?(?::?([-=+?])(.*))?", re.DOTALL)
_ESCAPED = re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL)  # behind a $
_PLACEHOLDER = re.compile(r"<[A-Za-z][\w ./-]{0,60}>")
_DECLARES = {"export", "declare", "typeset", "local", "readonly"}

Known = str | tuple[Word, ...] | None  # a value, an array, or set to what is not known


@dataclass(frozen=True, slots=True)
class Command:
    words: tuple[Word, ...]
    environment: Mapping[str, str]  # exported before it or set in front of it; "" in place of what is not known


@dataclass(slots=True)
class Script:
    commands: list[Command] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def read_script(text: str, environment: Mapping[str, str] | None = None) -> Script:
    """RecipeError where a quote or a bracket is never closed, or the text is too large."""
    if len(text) > LARGEST_CHARACTERS:
        found = f"is longer than {LARGEST_CHARACTERS // 1024} KiB"
        raise RecipeError.of("command.size", "command", found, remedy="Paste the launch alone.")
    plain, findings = plain_text(text)
    script = _Reader(plain, dict(environment or {})).read()
    script.findings[:0] = findings
    return script


def split_assignment(text: str) -> tuple[str, str] | None:
    match = _ASSIGNMENT.fullmatch(text)
    return (match[1], match[3]) if match else None


class _Reader:
    def __init__(self, text: str, environment: dict[str, str]) -> None:
        self._text = text
        self._at = 0
        self._made = 0
        self._script = Script()
        self._exported = environment
        self._variables: dict[str, Known] = dict(environment)
        self._words: list[Word] = []
        self._piece: list[str] | None = None  # the word being read; None: between two
        self._unknown = self._many = False
        self._skips_word = False  # the target of a redirection
        self._array: str | None = None  # the name of the array whose words are being read
        self._line_broken = True  # the last command ended with its line

    def read(self) -> Script:
        text = self._text
        while self._at < len(text):
            character = text[self._at]
            if character == "\\":
                self._backslash()
            elif character in "'\"$`":
                self._quoted_or_expanded(character)
            elif character == "#" and self._piece is None:
                end = text.find("\n", self._at)
                self._at = end if end >= 0 else len(text)
            elif character in " \t":
                self._end_word()
                self._at += 1
            elif character in "\n;&|()<>":
                self._operator(character)
            else:
                self._add(character)
                self._at += 1
        if self._array is not None:
            raise unclosed("a bracket")
        self._end_word()
        self._end_command(line_broken=True)
        return self._script

    def _backslash(self) -> None:
        blank = _BLANK_AFTER_BACKSLASH.match(self._text, self._at)
        if blank:
            line = self._text.count("\n", 0, self._at) + 1
            found = f"line {line} has a blank behind its last backslash"
            remedy = "Read as if the line went on: delete the blank."
            self._say(correct("command.cut-off", "command", found, "the shell ends the command there", remedy))
            self._at = blank.end() + 1
            self._end_word()
        elif self._text.startswith("\\\n", self._at):
            self._at += 2
        else:
            self._add(self._text[self._at + 1 : self._at + 2])
            self._at += 2

    def _quoted_or_expanded(self, character: str) -> None:
        if character == "'":
            self._add(self._until("'"))
        elif character == '"':
            self._double_quoted()
        elif character == "`":
            self._unknown_part("`" + self._until("`") + "`", quoted=False)
        else:
            self._expansion(quoted=False)

    def _until(self, mark: str) -> str:
        end = self._text.find(mark, self._at + 1)
        if end < 0:
            raise unclosed(f"a {mark}")
        inner = self._text[self._at + 1 : end]
        self._at = end + 1
        return inner

    def _double_quoted(self) -> None:
        text = self._text
        self._add("")
        self._at += 1
        while self._at < len(text) and text[self._at] != '"':
            character = text[self._at]
            if character == "\\" and text[self._at + 1 : self._at + 2] in {"$", "`", '"', "\\", "\n"}:
                self._add(text[self._at + 1].replace("\n", ""))
                self._at += 2
            elif character == "$":
                self._expansion(quoted=True)
            elif character == "`":
                self._unknown_part("`" + self._until("`") + "`", quoted=True)
            else:
                self._add(character)
                self._at += 1
        if self._at >= len(text):
            raise unclosed('a "')
        self._at += 1

    def _expansion(self, *, quoted: bool) -> None:
        text, start = self._text, self._at
        after = text[start + 1 : start + 2]
        if after == "'" and not quoted:
            escaped = _ESCAPED.match(text, start + 1)
            if escaped is None:
                raise unclosed("a '")
            self._at = escaped.end()
            self._add(escaped[1].encode("latin-1", "backslashreplace").decode("unicode_escape", "replace"))
        elif after == "(":
            self._at = self._closing(start + 1, "(", ")")
            self._unknown_part(text[start : self._at], quoted=quoted)
        elif after == "{":
            self._at = self._closing(start + 1, "{", "}")
            self._parameter(text[start + 2 : self._at - 1], text[start : self._at], quoted=quoted)
        elif name := _NAME.match(text, start + 1):
            self._at = name.end()
            self._parameter(name[0], name[0], quoted=quoted)
        elif after and after in "@*#?$!0123456789-":
            self._at += 2
            self._unknown_part(text[start : self._at], quoted=quoted)
        else:
            self._add("$")
            self._at += 1

    def _closing(self, start: int, opening: str, closing: str) -> int:
        depth = 0
        for place in range(start, len(self._text)):
            depth += (self._text[place] == opening) - (self._text[place] == closing)
            if depth == 0:
                return place + 1
        raise unclosed(f"a {opening}")

    def _parameter(self, inner: str, written: str, *, quoted: bool) -> None:
        match = _PARAMETER.fullmatch(inner)
        name, kind, default = (match[1], match[2], match[3] or "") if match else ("", None, "")
        value = self._variables.get(name)
        if name not in self._variables and kind in {"-", "="} and "$" not in default and "`" not in default:
            value = without_quotes(default, quoted=quoted, whole=quoted or self._assigns())
        if isinstance(value, tuple):
            for number, word in enumerate(value):
                if number:
                    self._end_word()
                self._add(word.text, unknown=word.unknown, many=word.many)
        elif value is None or (match and kind in {"+", "?"}):
            self._unknown_part(f"${written}" if not written.startswith("$") else written, quoted=quoted)
        elif quoted or self._assigns():
            self._add(value)
        else:
            for number, part in enumerate(value.split()):
                if number:
                    self._end_word()
                self._add(part)

    def _assigns(self) -> bool:
        return self._piece is not None and _ASSIGNMENT.match("".join(self._piece[:100])) is not None

    def _unknown_part(self, written: str, *, quoted: bool) -> None:
        self._add(written, unknown=True, many=not quoted)

    def _operator(self, character: str) -> None:
        placeholder = _PLACEHOLDER.match(self._text, self._at)
        if placeholder:
            self._add(placeholder[0], unknown=True)
            self._at = placeholder.end()
        elif character in "<>" or self._text.startswith("&>", self._at):
            if self._piece is not None and "".join(self._piece).isdigit():
                self._piece = None  # the number of a stream
            self._end_word()
            while self._at < len(self._text) and self._text[self._at] in "<>&|-":
                self._at += 1
            self._skips_word = True
        elif character == "(" and self._piece is not None and re.fullmatch(r"[A-Za-z_]\w*\+?=", "".join(self._piece)):
            self._array, self._piece = "".join(self._piece).rstrip("+="), None
            self._end_command(line_broken=False)
            self._at += 1
        elif self._array is not None and character == ")":
            self._end_word()
            self._variables[self._array] = tuple(self._words)
            self._array, self._words = None, []
            self._at += 1
        else:
            self._end_word()
            if self._array is None:
                self._end_command(line_broken=character == "\n")
            self._at += 1

    def _add(self, text: str, *, unknown: bool = False, many: bool = False) -> None:
        self._made += len(text)
        if self._made > _MOST_MADE:
            raise RecipeError.of("command.size", "command", "its variables make it too long", remedy="Write it out.")
        self._piece = [] if self._piece is None else self._piece
        self._piece.append(text)
        self._unknown |= unknown
        self._many |= many

    def _end_word(self) -> None:
        if self._piece is None:
            return
        text = "".join(self._piece)
        if not self._skips_word:
            self._words.append(Word(text, self._unknown, self._many and text.startswith(("$", "`"))))
        self._piece, self._unknown, self._many, self._skips_word = None, False, False, False

    def _end_command(self, *, line_broken: bool) -> None:
        words, self._words = self._words, []
        self._skips_word = False
        after_line, self._line_broken = self._line_broken, line_broken
        if not words:
            self._line_broken = after_line and line_broken
            return
        if words[0].text.startswith("--") and after_line and self._script.commands:
            before = self._script.commands[-1]
            self._script.commands[-1] = Command((*before.words, *words), before.environment)
            found = f"the flags from {words[0].text[:60]} on stand behind the end of the command"
            remedy = "Read as if they belonged to it: end the line before with a backslash, and let no comment stand between."
            self._say(correct("command.cut-off", "command", found, "the shell gives them to nobody", remedy))
            return
        self._take_command(words)

    def _take_command(self, words: list[Word]) -> None:
        """Sets what the command sets; keeps it where it does something else."""
        exports = words[0].text in _DECLARES
        rest = words[1:] if exports else words
        own: dict[str, str | None] = {}
        while rest and (pair := split_assignment(rest[0].text)):
            own[pair[0]] = None if rest[0].unknown else pair[1]
            rest = rest[1:]
        if rest and not exports:
            self._script.commands.append(Command(tuple(rest), {**self._exported, **_written(own)}))
            return
        self._variables |= own
        names = {*own, *(word.text for word in rest)} if exports else own.keys() & self._exported.keys()
        known = {name: self._variables[name] for name in names if name in self._variables}
        self._exported |= _written({name: value for name, value in known.items() if not isinstance(value, tuple)})

    def _say(self, finding: Finding) -> None:
        if len(self._script.findings) < 10:
            self._script.findings.append(finding)


def _written(values: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value or "" for name, value in values.items()}
