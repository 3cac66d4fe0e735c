from spec_toolkit.facts.known import load_tables
from spec_toolkit.facts.provenance import in_one_line, provenance
from spec_toolkit.facts.records import Level

TABLES = load_tables()


def test_every_value_comes_with_its_level_and_its_source_in_words() -> None:
    found = {entry.what: entry for entry in provenance("deepseek-ai/DeepSeek-V4-Flash-0731", TABLES)}
    assert found["config.hidden_size"].value == 4096
    assert found["config.hidden_size"].level is Level.OFFICIAL_CONFIG
    ratios = found["config.compress_ratios"]
    assert (ratios.level, ratios.source) == (Level.THIRD_PARTY, "v4-flash-0731-copy")
    assert ratios.where == TABLES.sources["v4-flash-0731-copy"]
    assert found["checkpoint.draft_bytes"].note.startswith("sum of the last three shards")


def test_a_line_puts_the_best_level_first_and_names_what_is_unknown() -> None:
    line = in_one_line("deepseek-ai/DeepSeek-V3-0324", TABLES)
    assert line.startswith("official-config (deepseek-v3-repo, nvidia-config-copies), official-card (")
    assert line.endswith("third-party (deepseek-sizes), unknown: draft_bytes")
    assert "unknown" not in in_one_line("zai-org/GLM-5.2", TABLES)


def test_each_repository_of_the_tables_can_say_where_it_is_from() -> None:
    for model in TABLES.models.values():
        for repo in model.checkpoints:
            names = [entry.what for entry in provenance(repo, TABLES)]
            assert "checkpoint.bytes" in names
            assert len(names) == len(set(names)), "one value, one source"
            assert in_one_line(repo, TABLES)


def test_an_unknown_repository_has_no_provenance() -> None:
    assert provenance("org/model", TABLES) == ()
    assert in_one_line("org/model", TABLES) == ""


def test_what_the_engine_makes_of_a_model_is_told_too() -> None:
    told = {each.what: each for each in provenance("deepseek-ai/DeepSeek-V3-0324", TABLES)}
    assert told["engine.steps_topk_width"].value == (3, 1, 4)
    assert "NextN" in told["engine.draft_class"].value
    assert told["engine.draft_class"].level is Level.SGLANG_SOURCE
