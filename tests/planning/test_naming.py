"""A finding's place, in the words of whoever brought a recipe or a command."""

import pytest

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.errors import warn
from spec_toolkit.planning import naming
from spec_toolkit.recipe.schema import ExtraArg, Recipe


def at(where: str):
    return warn("a.rule", where, "is so", "it cannot hold", "Change it.")


@pytest.mark.parametrize(
    ("where", "key", "flag"),
    [
        ("speculative_eagle_topk", "draft.topk", "--speculative-eagle-topk"),
        ("draft.num_draft_tokens", "draft.num_draft_tokens", "--speculative-num-draft-tokens"),
        ("limits.max_running_requests", "limits.max_running_requests", "--max-running-requests"),
        ("attn_dp_size", "hardware.layout.dp", "--attn-dp-size"),
        ("dp_size", "hardware.layout.dp", "--dp-size"),
        ("site.gpu", "hardware.gpu", "--gpu"),
        ("hardware.count", "hardware.count", "--count"),
        ("enable_hierarchical_cache", "--enable-hierarchical-cache", "--enable-hierarchical-cache"),
        ("SGLANG_DEEPEP_BF16_DISPATCH", "SGLANG_DEEPEP_BF16_DISPATCH", "SGLANG_DEEPEP_BF16_DISPATCH"),
        ("target.backbone", "target.backbone", "target.backbone"),
    ],
)
def test_one_place_has_a_key_and_a_flag(where: str, key: str, flag: str) -> None:
    assert naming.in_recipe(at(where)).where == key
    assert naming.in_command(at(where)).where == flag


def test_what_the_escape_hatch_holds_is_named_by_its_place() -> None:
    extra = (
        ExtraArg(flag="--max-prefill-tokens", value=4096, why="x"),
        ExtraArg(flag="--enable-hierarchical-cache", why="x"),
        ExtraArg(flag="--dist-init-addr", value="a:1", why="x"),
        ExtraArg(flag="--kv-cache-dtype", value="auto", why="x"),
    )
    assert [
        naming.in_recipe(at(where), extra).where
        for where in ("enable_hierarchical_cache", "dist_init_addr", "kv_cache_dtype", "enable_lora", "tp_size")
    ] == [
        *("engine.extra_args[1].flag", "engine.extra_args[2].flag", "engine.extra_args[3].flag"),
        *("--enable-lora", "hardware.layout.tp"),
    ]


def test_nothing_else_of_a_finding_changes() -> None:
    found = naming.in_command(at("dtype"))
    assert (found.rule, found.verdict, found.found, found.why, found.remedy) == (
        *("a.rule", at("").verdict, "is so"),
        *("it cannot hold", "Change it."),
    )


def test_every_name_of_the_table_exists() -> None:
    for argument, key in naming._KEY_OF.items():
        assert argument in Arguments.__struct_fields__ or argument.split(".")[0] in {"site", "workload", "pins"}, (
            argument
        )
        record = Recipe
        for name in key.split("."):
            assert name in record.__struct_fields__, key
            record = record.__annotations__[name]
