"""The tiny Gemma 4 in torch: against transformers' own classes, and against the plain way to do each thing."""

import json
from pathlib import Path

import pytest
import torch
from tiny_models.gemma4.checkpoint import write_checkpoint
from tiny_models.gemma4.config import FAMILIES, FULL, SLIDING, dense, e2b
from tiny_models.gemma4.network import Network

from tests.rehearsal.gemma_models import seeded

each_family = pytest.mark.parametrize("family", FAMILIES)
TOKENS = 100  # longer than the window, so that it cuts


@pytest.fixture
def ids() -> torch.Tensor:
    return torch.randint(3, 170, (1, TOKENS), generator=torch.Generator().manual_seed(1))


def written(family: str, folder: Path) -> tuple[Network, Path, Path]:
    """A seeded network and the two folders it is written to; its weights are those that bf16 can hold."""
    network = seeded(family)
    target, assistant = folder / "target", folder / "assistant"
    for each in (target, assistant):
        each.mkdir()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(parameter.bfloat16())
    write_checkpoint(network, target, assistant)
    return network, target, assistant


def transformers_own(folder: Path) -> torch.nn.Module:
    """The class that the configuration names, with the folder's weights."""
    import transformers

    (name,) = json.loads((folder / "config.json").read_text())["architectures"]
    return getattr(transformers, name).from_pretrained(folder, dtype=torch.float32).eval()


@pytest.mark.slow
@each_family
@torch.inference_mode()
def test_a_target_gives_the_logits_of_transformers_own_class(family: str, ids: torch.Tensor, tmp_path: Path) -> None:
    network, target, _ = written(family, tmp_path)
    theirs = transformers_own(target)
    torch.testing.assert_close(network.lm_head(network.hidden(ids)), theirs(input_ids=ids).logits, atol=1e-4, rtol=0)


@pytest.mark.slow
@each_family
@torch.inference_mode()
def test_an_assistant_drafts_as_transformers_own_class_step_by_step(
    family: str, ids: torch.Tensor, tmp_path: Path
) -> None:
    """Inside the window: what transformers' mask lets an assistant see beyond it is its cache's business."""
    network, _, folder = written(family, tmp_path)
    theirs = transformers_own(folder)
    seen, start = network.see(ids), 50
    shared = {kind: (kv.keys[:, :, : start + 1], kv.values[:, :, : start + 1]) for kind, kv in seen.shared.items()}
    carried = seen.states[:, start : start + 1]
    for step, state in enumerate(network.draft_states(ids, seen.states, seen.shared, 3), start=1):
        token = network.target.embed(ids[:, start + step : start + step + 1])
        position = torch.tensor([[start]])  # a target's first position is 1 and an assistant's 0, see network.py
        said = theirs(inputs_embeds=torch.cat((token, carried), -1), position_ids=position, shared_kv_states=shared)
        mine, looked_at = network.every_draft_logit(state)[0, start], network.draft_head(state)[0, start].isfinite()
        capped = 30 * torch.tanh(said.logits[0, 0] / 30)  # transformers leaves the soft cap of an assistant out
        torch.testing.assert_close(mine[looked_at], capped[looked_at], atol=1e-4, rtol=0)
        assert capped[looked_at].argmax() == network.draft_head(state)[0, start][looked_at].argmax()
        carried = said.last_hidden_state


@each_family
@torch.inference_mode()
def test_one_token_at_a_time_gives_what_the_whole_text_gives(family: str, ids: torch.Tensor) -> None:
    network = seeded(family)
    cache = network.new_cache()
    parts = [network.hidden(ids[:, :70], cache), *(network.hidden(ids[:, i : i + 1], cache) for i in range(70, TOKENS))]
    torch.testing.assert_close(torch.cat(parts, 1), network.hidden(ids), atol=1e-4, rtol=0)


@each_family
@torch.inference_mode()
def test_drafting_all_rounds_at_once_gives_what_each_round_drafts_alone(family: str, ids: torch.Tensor) -> None:
    """Against the engine's way: one query at one position, over the keys up to the start, its own state fed back."""
    network = seeded(family)
    seen = network.see(ids)
    at_once = network.draft_hidden(ids, seen.states, 3)
    window = network.config.text.sliding_window
    for start in (20, 90):
        carried = seen.states[:, start : start + 1]
        for step in range(3):
            token = network.target.embed(ids[:, start + 1 + step : start + 2 + step])
            x = network.assistant.pre_projection(torch.cat((token, carried), -1))
            for layer in network.assistant.model.layers:
                attention = layer.self_attn
                first = max(0, start + 1 - window) if attention.layer_type == SLIDING else 0
                kv = seen.shared[attention.layer_type]
                keys, values = (
                    part[:, :, first : start + 1].repeat_interleave(attention.heads // attention.kv_heads, 1)
                    for part in (kv.keys, kv.values)
                )
                queries = attention.queries(layer.input_layernorm(x), start)
                mixed = (queries @ keys.transpose(-1, -2)).softmax(-1) @ values
                x = x + layer.post_attention_layernorm(attention.o_proj(mixed.transpose(1, 2).flatten(2)))
                x = x + layer.post_feedforward_layernorm(layer.mlp(layer.pre_feedforward_layernorm(x)))
                x = x * layer.layer_scalar
            state = network.assistant.model.norm(x)
            torch.testing.assert_close(state[:, 0], at_once[step][:, start], atol=1e-4, rtol=0)
            carried = network.assistant.post_projection(state)


def test_layers_that_share_read_the_last_layer_of_their_kind_before_the_tail() -> None:
    text = e2b().text
    assert text.layer_types == (SLIDING, FULL, SLIDING, FULL)
    assert [text.kv_owner(layer) for layer in range(4)] == [0, 1, 0, 1]
    assert [dense().text.kv_owner(layer) for layer in range(4)] == [0, 1, 2, 3]


def test_an_assistant_reads_the_last_layer_of_each_kind_or_its_owner() -> None:
    for family, owners in (("gemma4_dense", {SLIDING: 2, FULL: 3}), ("gemma4_e2b", {SLIDING: 0, FULL: 1})):
        network = seeded(family)
        cache = network.new_cache()
        shared = network.target(torch.arange(3, 9)[None], cache).shared
        assert {kind: next(i for i, c in enumerate(cache) if c.kept is kv) for kind, kv in shared.items()} == owners


def test_a_full_layer_of_the_dense_kind_has_no_values_of_its_own_and_the_e_kind_has() -> None:
    for family, has in (("gemma4_dense", False), ("gemma4_e2b", True)):
        full = next(x.self_attn for x in seeded(family).target.layers if x.self_attn.layer_type == FULL)
        assert hasattr(full, "v_proj") is has


@torch.inference_mode()
def test_the_centroid_head_scores_the_tokens_of_the_best_centroids_and_no_other() -> None:
    network = seeded("gemma4_e2b")
    state = torch.randn(5, network.config.assistant.text.hidden_size)
    masked = network.assistant.masked_embedding
    best = masked.centroids(state).topk(network.config.assistant.centroid_intermediate_top_k).indices
    groups = masked.token_ordering.view(network.config.assistant.num_centroids, -1)
    for row, logits in enumerate(network.draft_head(state)):
        assert set(logits.isfinite().nonzero().flatten().tolist()) == set(groups[best[row]].flatten().tolist())
