"""The engine's flags: how values are written, and that the pinned engine knows each of them."""

import os
import subprocess
import sys

import pytest

from spec_toolkit.engine.flags import ALGORITHM_OF, Flag, to_argv
from spec_toolkit.shipped import rehearsal
from spec_toolkit.terms import Method


def test_values_become_arguments_and_absent_ones_do_not() -> None:
    options = {
        Flag.MODEL: "m",
        Flag.TP: 8,
        Flag.MEMORY_FRACTION: 0.85,
        Flag.METRICS: True,
        Flag.DISABLE_OVERLAP: False,
        Flag.REVISION: None,
        Flag.DECODE_GRAPH_SIZES: (1, 2, 4),
    }
    assert to_argv(options) == (
        *("--model-path", "m", "--tp-size", "8", "--mem-fraction-static", "0.85", "--enable-metrics"),
        *("--cuda-graph-bs-decode", "1", "2", "4"),
    )


def test_every_method_that_drafts_has_a_spelling() -> None:
    assert set(ALGORITHM_OF) == set(Method) - {Method.NONE}


ASK = """
import argparse, sys
from sglang.srt.server_args import ServerArgs
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
known = {option for action in parser._actions for option in action.option_strings} | {"--config"}
flags, algorithms = sys.argv[1].split(), sys.argv[2].split()
print(*sorted(set(flags) - known))
for name in algorithms:
    SpeculativeAlgorithm.from_string(name)
"""


@pytest.mark.engine
def test_the_pinned_engine_knows_every_flag_and_algorithm() -> None:
    environment = os.environ | {
        "PYTHONPATH": str(rehearsal() / "path"),
        "SGLANG_USE_CPU_ENGINE": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-c", ASK, " ".join(Flag), " ".join(ALGORITHM_OF.values())]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert answer.returncode == 0, answer.stderr[-2000:]
    assert answer.stdout.strip() == "", "flags the engine does not know"
