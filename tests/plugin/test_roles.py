"""Role and ranks from the call stack; the functions carry the names of the engine's own."""

from spec_toolkit.handover import Role
from spec_toolkit.plugin.roles import EngineProcess, this_process


def run_scheduler_process(server_args, tp_rank, pp_rank, dp_rank):
    return load_plugins()


def run_detokenizer_process(server_args):
    return load_plugins()


def run_data_parallel_controller_process(server_args, start=None):
    return start() if start else load_plugins()


def load_plugins():
    return this_process()


def test_a_scheduler_has_the_ranks_it_was_started_with():
    assert run_scheduler_process(None, 1, 0, 3) == EngineProcess(Role.SCHEDULER, {"dp": 3, "pp": 0, "tp": 1})


def test_a_rank_the_process_does_not_have_is_left_out():
    assert str(run_scheduler_process(None, 1, 0, None)) == "scheduler-pp0-tp1"


def test_a_detokenizer_has_no_ranks():
    assert run_detokenizer_process(None) == EngineProcess(Role.DETOKENIZER, {})


def test_whoever_else_loads_plugins_is_the_launcher():
    assert load_plugins() == EngineProcess(Role.LAUNCHER, {})


def test_a_forked_scheduler_is_not_its_parent():
    """Its stack still holds the frames of the controller that forked it."""
    process = run_data_parallel_controller_process(None, lambda: run_scheduler_process(None, 0, 0, 1))
    assert process.role is Role.SCHEDULER
