"""A situation for tests, of the arguments of a launch and little else."""

from typing import Any

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.facts.known import load_tables
from spec_toolkit.facts.model import Model, Origin
from spec_toolkit.planning.situation import Pins, Site, Situation, Workload


def launch(
    *,
    architecture: str | None = "DeepseekV3ForCausalLM",
    gpu: str | None = "h200",
    peak: int | None = None,
    context: int | None = None,
    environment: dict[str, str] | None = None,
    require_graphs: bool = False,
    dspark_block: int | None = None,
    steps: tuple[int, ...] = (),
    **arguments: Any,
) -> Situation:
    tables = load_tables()
    return Situation(
        arguments=Arguments(**arguments),
        target=Model(
            name="target",
            origin=Origin.FOLDER,
            says="a test",
            architecture=architecture,
            dspark_block_size=dspark_block,
        ),
        draft=None,
        site=Site(gpu=gpu, facts=tables.gpus.get(gpu or ""), gpus_per_node=8),
        pins=Pins(sglang=tables.engine.version),
        engine=tables.engine,
        workload=Workload(peak_concurrency=peak, context_tokens=context),
        environment=environment or {},
        require_graphs=require_graphs,
        steps=steps,
    )
