import argparse
import json
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spec_toolkit.engine.command_line.parse import MOST_FINDINGS, Parsed, parse_words
from spec_toolkit.engine.command_line.retired import FOREIGN, RETIRED
from spec_toolkit.engine.command_line.table import FlagRow, flag_table
from spec_toolkit.engine.command_line.words import Word
from spec_toolkit.errors import Verdict


def parse(line: str) -> Parsed:
    return parse_words([Word(word) for word in line.split()])


def said(parsed: Parsed) -> list[tuple[str, Verdict]]:
    return [(finding.rule, finding.verdict) for finding in parsed.findings]


@pytest.mark.parametrize(
    ("line", "values"),
    [
        pytest.param("--tp-size 8", {"tp_size": 8}, id="full-name"),
        pytest.param("--tp 8", {"tp_size": 8}, id="abbreviation"),
        pytest.param("--tensor-parallel-size=8", {"tp_size": 8}, id="alias-joined"),
        pytest.param("--tp 4 --tp-size 8", {"tp_size": 8}, id="the-last-holds"),
        pytest.param("--cuda-graph-bs-decode 1 2 4 --tp 8", {"cuda_graph_bs_decode": [1, 2, 4], "tp_size": 8}, id="several-values"),
        pytest.param("--context-length 128k", {"context_length": 128_000}, id="size"),
        pytest.param("--context-length 128Ki", {"context_length": 131_072}, id="size-of-two"),
        pytest.param("--chunked-prefill-size -1", {"chunked_prefill_size": -1}, id="negative-number"),
        pytest.param("--mem-fraction-static .9", {"mem_fraction_static": 0.9}, id="fraction"),
        pytest.param("--no-dllm-fdfo", {"dllm_fdfo": False}, id="switched-off"),
        pytest.param("--dllm-fdfo", {"dllm_fdfo": True}, id="switched-on"),
        pytest.param('--limit-mm-data-per-request {"image":1}', {"limit_mm_data_per_request": {"image": 1}}, id="json"),
        pytest.param("--lora-paths", {"lora_paths": []}, id="none-of-any"),
        pytest.param("--model-checksum --tp 2", {"model_checksum": "", "tp_size": 2}, id="maybe-none"),
        pytest.param("--monokernel-backend amd", {"enable_amd_monokernel": True}, id="stores-another-value"),
        pytest.param("--dsa-triton-union 2", {"dsa_triton_union": 2}, id="a-number-among-numbers"),
        pytest.param("--api-key sk-very-secret", {"api_key": "***"}, id="secret"),
        pytest.param("--speculative-algo EAGLE", {"speculative_algorithm": "EAGLE"}, id="long-abbreviation"),
    ],
)  # fmt: skip
def test_reads(line, values):
    parsed = parse(line)
    assert parsed.values == values
    assert all(verdict is Verdict.NOTE for _, verdict in said(parsed))


@pytest.mark.parametrize(
    ("line", "rule", "words"),
    [
        pytest.param("--tp eight", "command.value", "whole number", id="wrong-type"),
        pytest.param("--tp 8.0", "command.value", "whole number", id="near-a-number"),
        pytest.param("--attention-backend flashinfr", "command.value", "flashinfer", id="nearest-choice"),
        pytest.param("--moe-a2a-backend deep_ep", "command.value", "Did you mean 'deepep'", id="choice"),
        pytest.param("--cuda-graph-backend-prefill tc_piecewise", "command.value", "full, breakable, disabled", id="removed-choice"),
        pytest.param("--context-length 1.5Ki", "command.value", "Ki", id="half-a-power-of-two"),
        pytest.param("--limit-mm-data-per-request {image", "command.value", "JSON", id="no-json"),
        pytest.param("--tp", "command.missing-value", "no value", id="missing"),
        pytest.param("--cuda-graph-bs-decode --tp 8", "command.missing-value", "no value", id="missing-list"),
        pytest.param("--cuda-graph-max 8", "command.ambiguous-flag", "--cuda-graph-max-bs-decode", id="ambiguous"),
        pytest.param("--tp_size 8", "command.unknown-flag", "Did you mean '--tp-size'", id="underscore"),
        pytest.param("-tp 8", "command.unknown-flag", "Did you mean '--tp-size'", id="one-dash"),
        pytest.param("--speculative-num-step 3x --speculative-nu-steps 3", "command.unknown-flag", "--speculative-num-steps", id="typo"),
        pytest.param("--max-model-len 8192", "command.unknown-flag", "--context-length", id="another-servers"),
        pytest.param("--tp 8 64", "command.stray-word", "'64'", id="stray"),
        pytest.param("--trust-remote-code=true", "command.value", "switch", id="switch-with-a-value"),
        pytest.param("--cuda-graph-bs-decode=1 2", "command.stray-word", "'2'", id="joined-takes-one"),
        pytest.param("--help", "command.help", "nothing is launched", id="help"),
        pytest.param("--enforce-piecewise-cuda-graph", "command.unknown-flag", "breakable", id="retired-without-successor"),
    ],
)  # fmt: skip
def test_refuses_what_the_engine_refuses(line, rule, words):
    parsed = parse(line)
    assert (rule, Verdict.REFUSE) in said(parsed)
    assert words in "\n".join(finding.sentence() for finding in parsed.findings)


@pytest.mark.parametrize(
    ("line", "values"),
    [
        pytest.param("--cuda-graph-bs 1 2 4", {"cuda_graph_bs_decode": [1, 2, 4]}, id="a-list"),
        pytest.param("--cuda-graph-max-bs=64", {"cuda_graph_max_bs_decode": 64}, id="joined"),
        pytest.param("--nsa-prefill-backend fa3", {"dsa_prefill_backend": "fa3"}, id="a-choice"),
        pytest.param("--enable-deepep-moe", {"moe_a2a_backend": "deepep"}, id="a-switch-that-became-a-value"),
        pytest.param("--enable-ep-moe --tp 8", {"tp_size": 8, "ep_size": 8}, id="the-value-of-another-flag"),
        pytest.param("--nsa-prefill-cp-mode in-seq-split", {"cp_strategy": "zigzag"}, id="a-value-renamed-with-it"),
        pytest.param("--enable-piecewise-cuda-graph --tp 8", {"tp_size": 8}, id="no-effect"),
        pytest.param("--piecewise-cuda-graph-compiler eager --tp 8", {"tp_size": 8}, id="no-effect-with-a-value"),
    ],
)
def test_an_old_flag_is_planned_as_its_successor(line, values):
    parsed = parse(line)
    assert parsed.values == values
    assert said(parsed) == [("command.renamed", Verdict.CORRECT)]


def test_what_follows_an_unknown_flag_is_never_shown():
    parsed = parse("--hf-tokn hf_abcdefghijklmnop --tp 8 sk-abcdefghijklmnop")
    assert "abcdef" not in "\n".join(finding.sentence() for finding in parsed.findings)


@pytest.mark.parametrize(
    ("words", "values", "rules"),
    [
        pytest.param([Word("--tp"), Word("$TP", True, True), Word("--ep"), Word("2")], {"ep_size": 2}, ["command.variable"], id="value"),
        pytest.param([Word("--tp=$TP", True)], {}, ["command.variable"], id="joined"),
        pytest.param([Word("--tp"), Word("2"), Word("$MORE", True, True)], {"tp_size": 2}, ["command.variable"], id="further-flags"),
        pytest.param([Word("--$WHAT", True), Word("2")], {}, ["command.variable"], id="flag"),
        pytest.param([Word("--api-key"), Word("$KEY", True)], {"api_key": "***"}, [], id="secret"),
    ],
)  # fmt: skip
def test_what_only_the_shell_knows_stays_unknown(words, values, rules):
    parsed = parse_words(words)
    assert (parsed.values, [rule for rule, _ in said(parsed)]) == (values, rules)


def test_the_address_of_other_nodes_is_kept_though_only_the_shell_knows_it():
    parsed = parse_words(
        [Word("--dist-init-addr"), Word("$LEADER:20000", True, True), Word("--node-rank"), Word("$RANK", True, True)]
    )
    assert (parsed.values, parsed.findings) == ({"dist_init_addr": "$LEADER:20000"}, [])


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("hf_abcdefghijklmnopqrstuvwxyz", "***"),
        ("sk-proj-abcdefghijklmnop", "***"),
        ("https://me:pw@host/x", "https://***@host/x"),
        ("/data/hf_checkpoints_v3/x", "/data/hf_checkpoints_v3/x"),
        ("deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-V3"),
    ],
)
def test_what_looks_like_a_key_is_kept_nowhere(text, kept):
    parsed = parse(f"--served-model-name {text}")
    assert parsed.values == {"served_model_name": kept}
    assert parsed.written["served_model_name"].values == (kept,)


def test_a_line_that_is_no_launch_is_not_complained_of_word_by_word():
    assert len(parse("--x y " * 500).findings) == MOST_FINDINGS


def test_old_flags_are_old_and_their_successors_are_known():
    known = flag_table().by_name
    assert not [old for old in [*RETIRED, *FOREIGN] if old in known]
    assert not [old for old, retired in RETIRED.items() if retired.instead and retired.instead not in known]
    assert not [old for old, new in FOREIGN.items() if new not in known]


def size(text: str) -> int:
    units = {"k": 10**3, "M": 10**6, "Ki": 2**10, "Mi": 2**20}
    unit = next((unit for unit in sorted(units, key=len, reverse=True) if text.endswith(unit)), "")
    return int(Decimal(text.removesuffix(unit)) * units[unit]) if unit else int(text)


TYPES = {"text": str, "int": int, "float": float, "size": size, "json": json.loads}


class Argparse(argparse.ArgumentParser):
    """Python's own, with the engine's flags: what ours is held against."""

    def __init__(self) -> None:
        super().__init__(add_help=False)
        rows: dict[str, FlagRow] = {row.names[0]: row for row in flag_table().by_name.values() if row.dest != "help"}
        for row in rows.values():
            if row.negatable:
                self.add_argument(
                    row.names[0], dest=row.dest, default=argparse.SUPPRESS, action=argparse.BooleanOptionalAction
                )
            elif row.takes == "none":
                self.add_argument(*row.names, dest=row.dest, default=argparse.SUPPRESS, action="store_true")
            else:
                nargs = {"one": None, "many": "+", "any": "*", "maybe": "?"}[row.takes]
                const = row.stores if row.takes == "maybe" else None
                kind = TYPES[row.type]
                choices = [kind(choice) for choice in row.choices] or None
                self.add_argument(
                    *row.names,
                    dest=row.dest,
                    default=argparse.SUPPRESS,
                    nargs=nargs,
                    const=const,
                    choices=choices,
                    type=kind,
                )

    def error(self, message: str) -> None:  # type: ignore[override]
        raise ValueError(message)


PARSER = Argparse()
NAMES = [name for name in flag_table().by_name if name not in {"-h", "--help", "--monokernel-backend"}]
SECRET = {"api_key", "admin_api_key", "ssl_keyfile_password"}
flags = st.one_of(
    st.sampled_from(NAMES),
    st.sampled_from(["--tp", "--ep", "--cuda-graph", "--model", "--dp", "--mem", "--spec", "--", "-x", "--x", "--tp_size", "-"]),
    st.sampled_from(NAMES).flatmap(lambda name: st.integers(3, len(name)).map(lambda n: name[:n])),
).filter(lambda flag: flag not in RETIRED)  # fmt: skip
values = st.sampled_from(
    [
        "8",
        "0.9",
        "-1",
        "-.5",
        "1e3",
        "16k",
        "2Ki",
        "auto",
        "fa3",
        "EAGLE",
        "{}",
        "[1]",
        "a b",
        "-a b",
        "",
        "x=y",
        "none",
        "True",
    ]
)
lines = st.lists(st.one_of(flags, values, values, st.tuples(flags, values).map("=".join)), max_size=8)


@given(lines)
@example(["--tp", "8", "--", "--tp"])
@example(["--served-model-name", "-a b"])
@example(["--served-model-name", "-a"])
@example(["--chunked-prefill-size", "-1"])
@example(["--cuda-graph-bs-decode", "1", "--", "2"])
def test_reads_and_refuses_exactly_what_pythons_own_parser_does(line):
    if any(word.partition("=")[0] in RETIRED for word in line):
        return
    parsed = parse_words([Word(word) for word in line])
    refused = [finding for finding in parsed.findings if finding.verdict is Verdict.REFUSE]
    try:
        expected = {dest: "***" if dest in SECRET else value for dest, value in vars(PARSER.parse_args(line)).items()}
    except ValueError:
        assert refused, line
    else:
        assert not refused, (line, refused)
        assert parsed.values == expected
