"""One launch of a text, as the tests of its parts want it."""

from spec_toolkit.recipe.command import CommandLaunch, OpenFile, first_launch, read_commands


def read_command(text: str, *, open_file: OpenFile | None = None) -> CommandLaunch:
    return first_launch(read_commands(text, open_file=open_file))
