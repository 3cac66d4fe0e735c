"""`spec-toolkit`: its verbs, and the one place where an error becomes a message and an exit code."""

import gc
import importlib
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import click

from spec_toolkit import __version__
from spec_toolkit.errors import SpecError

# Verb: (module, help line). A module is imported when its verb is used: `--help` stays free of everything else.
_VERBS = {
    "bundle": ("bundle", "Pack one redacted archive of a deployment, to attach to a bug report."),
    "check": ("check", "Say what is wrong with a recipe, a launch command or a manifest, and what to write instead."),
    "demo": ("demo", "Deploy a rehearsal recipe on this machine, stream from it, and stop it. Needs no GPU."),
    "deploy": ("deploy", "Turn a recipe into a running, checked, speculating engine."),
    "doctor": ("doctor", "Say what this machine has against what the pinned engine needs, and how to mend it."),
    "drills": ("drills", "Break a rehearsal deployment while clients stream from it, and say what became of them."),
    "hold": ("hold", "Pin the mode of a deployment, against what its policy would do."),
    "init": ("init", "Write the recipe that a launch command stands for."),
    "logs": ("logs", "Show what happened to a deployment, and the engine's own log."),
    "patches": ("patches", "List the changes made to the engine, and verify them against the installed one."),
    "pin": ("pin", "Write commits, hashes and the image's digest into a recipe."),
    "plan": ("plan", "Work out what a recipe takes, what bounds it and what its drafts may be worth."),
    "recipes": ("recipes", "List the recipes that ship with the toolkit, or explain one."),
    "rehearse": (
        "rehearse",
        "Run a recipe at toy size on the real engine, and say whether speculation changes an answer.",
    ),
    "release": ("release", "Let the policy of a deployment move it again."),
    "resolve": ("resolve", "Ask the engine itself what it makes of a recipe or a command, without a GPU."),
    "status": ("status", "Show the deployments of this machine."),
    "stop": ("stop", "Let a deployment finish what it runs, and end it."),
}

# Verbs that answer and end. What they make they need to the end, and looking through it for rubbish took a tenth of the answer.
_AT_ONCE = frozenset({"check", "plan", "recipes", "init"})

EXIT_CODES = """\b
Exit codes: 0 yes, 1 the answer is no, 2 the recipe or the command line is wrong, 3 the world is wrong, 130 interrupted, 141 nobody
read the answer."""


class _ReaderWentError(Exception):
    """Nobody reads what is printed. Click would end with 1, which says "no" here."""


@contextmanager
def _told_apart() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise _ReaderWentError from error


class _Verbs(click.Group):
    def make_context(self, *arguments: Any, **extra: Any) -> click.Context:
        """Prints help and version."""
        with _told_apart():
            return super().make_context(*arguments, **extra)

    def invoke(self, ctx: click.Context) -> object:
        with _told_apart():
            return super().invoke(ctx)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Of every verb: what is no text can be neither read nor shown."""
        for place, argument in enumerate(args, start=1):
            try:
                argument.encode()
            except UnicodeEncodeError:
                raise click.UsageError(f"Word {place} of the command line is not UTF-8 text.", ctx) from None
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        if cmd_name not in _VERBS:
            return None
        if cmd_name in _AT_ONCE:
            gc.disable()
        command: click.Command = importlib.import_module(f"spec_toolkit.cli.{_VERBS[cmd_name][0]}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        with formatter.section("Commands"):
            formatter.write_dl([(verb, line) for verb, (_, line) in sorted(_VERBS.items())])


@click.group(cls=_Verbs, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="spec-toolkit")
def cli() -> None:
    """Put speculative decoding into production on SGLang, and keep it honest.

    \b
    spec-toolkit demo                        no GPU needed: a tiny DeepSeek-V3, the real engine
    spec-toolkit deploy deepseek_v3_h200     eight H200
    """


def main() -> None:
    try:
        code = _run()
    except (BrokenPipeError, _ReaderWentError):
        nowhere = os.open(os.devnull, os.O_WRONLY)  # Python would complain of what it could not print once more at exit
        for stream in (1, 2):
            os.dup2(nowhere, stream)
        code = 128 + signal.SIGPIPE  # as a shell tells it of other programs
    sys.exit(code)


def _run() -> int:
    try:
        code = cli.main(standalone_mode=False)
    except SpecError as error:
        for finding in error.findings:
            _say(finding.sentence())
        return error.exit_code
    except click.ClickException as error:
        with suppress(BrokenPipeError):
            error.show()
        return 2
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        raise
    except OSError as error:
        where = error.filename or "this machine"
        _say(f"{where}: {error.strerror or error}. Check rights and space. [world.system]")
        return 3
    return code if isinstance(code, int) else 0


def _say(sentence: str) -> None:
    with suppress(BrokenPipeError):  # the exit code says it too
        click.echo(sentence, err=True)


if __name__ == "__main__":
    main()
