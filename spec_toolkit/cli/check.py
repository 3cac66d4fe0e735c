"""`spec-toolkit check`."""

import click

from spec_toolkit.cli.options import launch_options, one_of


@click.command()
@click.argument("recipe", required=False)
@launch_options
@click.option("--json", "as_json", is_flag=True, help="Print a record for each launch, not text.")
def command(  # noqa: PLR0913 - one argument an option
    recipe: str | None,
    *,
    pasted: str | None,
    manifest: str | None,
    gpu: str | None,
    count: int | None,
    nodes: int | None,
    as_json: bool,
) -> int:
    """Say what is wrong with RECIPE (a file, or a name of the catalogue), and what to write instead.

    Or with a launch command, or with every launch in a file of Kubernetes objects and with what surrounds it there.

    \b
    spec-toolkit check recipes/deepseek_v3_h200.yaml
    spec-toolkit check --command 'python3 -m sglang.launch_server --model-path ...' --gpu h200 --count 8
    spec-toolkit check --manifest deployment.yaml --gpu h200

    Asks neither a GPU nor the hub, and executes nothing. Exit 0 nothing to refuse, 1 refused, 2 it cannot be read.
    """
    one_of(recipe, pasted, manifest)
    if recipe is not None:
        return _recipe(recipe, as_json=as_json)
    return _launches(pasted, manifest, (gpu, count, nodes), as_json=as_json)


# Each way imports what it needs and no more: half of the time that an answer takes is imports.


def _recipe(name: str, *, as_json: bool) -> int:
    from spec_toolkit.launch.planned import plan_recipe  # noqa: PLC0415 - see above
    from spec_toolkit.recipe.catalogue import find_recipe  # noqa: PLC0415 - see above
    from spec_toolkit.report import said  # noqa: PLC0415 - see above

    _, plan = plan_recipe(find_recipe(name))
    if as_json:
        from spec_toolkit.report import asked as report  # noqa: PLC0415 - see above

        click.echo(said.as_json([report.of_plan(plan)]))
    else:
        click.echo(said.check(plan))
    return 0 if plan.may_launch else 1


def _launches(
    pasted: str | None, manifest: str | None, given: tuple[str | None, int | None, int | None], *, as_json: bool
) -> int:
    from spec_toolkit.cli.launches import of_command, of_manifest  # noqa: PLC0415 - see above
    from spec_toolkit.facts.known import load_tables  # noqa: PLC0415 - see above
    from spec_toolkit.launch.asked import Given, check_commands, check_pods  # noqa: PLC0415 - see above
    from spec_toolkit.report import asked as report  # noqa: PLC0415 - see above
    from spec_toolkit.report import said  # noqa: PLC0415 - see above

    gpu, count, nodes = given
    machines = Given(gpu=gpu, count=count, nodes=nodes)
    if pasted is not None:
        found = check_commands(of_command(pasted), machines, load_tables())
    else:
        found = check_pods(of_manifest(str(manifest)), machines, load_tables())
    click.echo(said.as_json(report.of_launches(found)) if as_json else report.checked(found))
    return 0 if all(each.may_launch for each in found) else 1
