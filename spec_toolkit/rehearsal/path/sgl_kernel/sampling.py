"""Verifying a round by sampling: which drafts are emitted, and the token drawn behind them. The law is the target's, exactly.

One position, target p and draft q, both after the same filters; a coin is uniform on [0, 1).

- *Rejection* (chains): draft v ~ q passes while coin * q(v) < p(v). Where one fails, the token comes from the residual
  (p - q)+, renormalised: q min(1, p/q) + (p - q)+ = p. Drawing it from p itself would count twice what the draft covers.
- *Target only* (chains and trees): the children of a node cut the unit interval into pieces as long as their p; the coin
  falls into one of them or into none. Then the token comes from p without the children.

Behind the last draft there is nothing to take away, and the token comes from p. Callers: eagle_sample in
sglang/srt/speculative/eagle_utils.py; sources: Leviathan et al. 2023, sglang/kernels/ops/speculative/reject_sampling.py,
sgl-kernel's TreeSpeculativeSamplingTargetOnly. The latter accepts at coin = p, so that a coin of exactly 0 emits a token the
filters took out; here the comparison is strict.
"""

import itertools

import torch

from . import bounds
from .tree import NO_NODE, MalformedTreeError


def chain_speculative_sampling(
    predicts: torch.Tensor,
    accept_index: torch.Tensor,
    accept_token_num: torch.Tensor,
    candidates: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    uniform_samples: torch.Tensor,
    uniform_samples_for_final_sampling: torch.Tensor,
    target_probs: torch.Tensor,
    draft_probs: torch.Tensor,
    threshold_single: float = 1.0,
    threshold_acc: float = 1.0,
    deterministic: bool = True,
    *,
    block_verification: bool = False,
) -> None:
    """Rejection sampling on a chain of n - 1 drafts. The thresholds and the links are not used: a chain has one child each.

    `candidates` [batch, n], the root first; `uniform_samples` [batch, n], coin i for draft i + 1; one more coin a request for
    the last token; `target_probs` [batch, n, vocabulary], row i stands behind candidate i; `draft_probs` [batch, n - 1 or
    more, vocabulary], row i is what draft i + 1 was drawn from. `block_verification` judges the drafts together (Sun et al.
    2024, algorithm 2), which emits no fewer tokens under the same law.

    Writes `predicts`, `accept_index` and `accept_token_num` as verify_tree_greedy_cpu does.
    """
    op = "chain_speculative_sampling"
    drafts = _check(op, predicts, accept_index, candidates, retrive_index, uniform_samples, target_probs) - 1
    bounds.equal(op, "accept_index's columns", accept_index.shape[1], drafts + 1)
    bounds.fits(op, "draft_probs' rows", drafts, draft_probs.shape[1])
    bounds.equal(op, "draft_probs' vocabulary", draft_probs.shape[2], target_probs.shape[2])
    p, q = target_probs.double(), proper(draft_probs[:, :drafts].double())
    drafted = candidates[:, 1:].long().unsqueeze(2)
    ratios = acceptance(p[:, :drafts].gather(2, drafted).squeeze(2), q.gather(2, drafted).squeeze(2))
    coins = uniform_samples[:, :drafts].double()
    rows = torch.arange(len(candidates))
    if block_verification:
        accepted, scale = longest_block(ratios, coins, p, q)
    else:
        accepted = (coins < ratios).long().cumprod(1).sum(1)
        scale = torch.ones(len(candidates), dtype=torch.double)
    left = p[rows, accepted]
    rejected = accepted < drafts
    left[rejected] = residual(scale[rejected, None] * left[rejected], q[rows[rejected], accepted[rejected]])
    last = draw(left, p[rows, accepted], uniform_samples_for_final_sampling)
    emitted = torch.cat([candidates[:, 1:], candidates[:, :1]], dim=1).scatter(1, accepted[:, None], last[:, None])
    on_path = torch.arange(drafts + 1) <= accepted[:, None]
    predicts[retrive_index[on_path].long()] = emitted[on_path].to(predicts.dtype)
    accept_index[on_path] = retrive_index[on_path].to(accept_index.dtype)
    accept_token_num.copy_(accepted)


def tree_speculative_sampling_target_only(
    predicts: torch.Tensor,
    accept_index: torch.Tensor,
    accept_token_num: torch.Tensor,
    candidates: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    uniform_samples: torch.Tensor,
    uniform_samples_for_final_sampling: torch.Tensor,
    target_probs: torch.Tensor,
    draft_probs: torch.Tensor,
    threshold_single: float = 1.0,
    threshold_acc: float = 1.0,
    deterministic: bool = True,
) -> None:
    """Walk down the tree along draws from the target. `draft_probs` is scratch: what is set there is taken away from p.

    Shapes as for a chain, with n nodes and the links that build_tree wrote; coin i is for the choice among node i's children.
    Thresholds below 1 accept more than the target would: a draft as likely as `threshold_single`, or a coin below the drafts'
    mass over `threshold_acc`.

    Writes `predicts`, `accept_index` and `accept_token_num` as verify_tree_greedy_cpu does, and `draft_probs`.
    """
    op = "tree_speculative_sampling_target_only"
    batch, nodes = (
        len(candidates),
        _check(op, predicts, accept_index, candidates, retrive_index, uniform_samples, target_probs),
    )
    bounds.equal(op, "draft_probs' shape", tuple(draft_probs.shape), tuple(target_probs.shape))
    bounds.inside(op, "retrive_next_token + 1", retrive_next_token + 1, nodes + 1)
    bounds.inside(op, "retrive_next_sibling + 1", retrive_next_sibling + 1, nodes + 1)
    child, sibling, tokens = retrive_next_token.tolist(), retrive_next_sibling.tolist(), candidates.tolist()
    coins, flat = uniform_samples.double().tolist(), retrive_index.tolist()
    # How likely the target finds each node's token behind each node, [batch][behind][node].
    likely = target_probs.double().gather(2, candidates.long().unsqueeze(1).expand(batch, nodes, nodes)).tolist()
    longest = accept_index.shape[1] - 1
    ends, whole = [0] * batch, [False] * batch
    for row in range(batch):
        path = [0]
        while len(path) <= longest:
            node = path[-1]
            children = siblings(child[row][node], sibling[row])
            mine = [(each, tokens[row][each], likely[row][node][each]) for each in children]
            chosen = chosen_child(mine, coins[row][node], threshold_single, threshold_acc)
            if chosen == NO_NODE:
                taken = [token for _, token, _ in mine]
                draft_probs[row, node, taken] = target_probs[row, node, taken].to(draft_probs.dtype)
                break
            path.append(chosen)
        ends[row], whole[row] = path[-1], len(path) > longest
        accept_index[row, : len(path)] = torch.tensor([flat[row][node] for node in path], dtype=accept_index.dtype)
        accept_token_num[row] = len(path) - 1
        for before, node in itertools.pairwise(path):
            predicts[flat[row][before]] = tokens[row][node]
    rows, at = torch.arange(batch), torch.tensor(ends)
    p = target_probs[rows, at].double()
    # Behind a whole path no child was judged, and the scratch there may hold anything.
    left = torch.where(torch.tensor(whole)[:, None], p, residual(p, draft_probs[rows, at].double()))
    predicts[retrive_index[rows, at].long()] = draw(left, p, uniform_samples_for_final_sampling).to(predicts.dtype)


def acceptance(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """How likely a draft passes, p / q of its token; 0 where q is no probability, for such a draft was not drawn from it."""
    return torch.where(q > 0, p / q.clamp(min=torch.finfo(q.dtype).tiny), torch.zeros_like(p))


def residual(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """What the target has beyond the draft, not renormalised."""
    return (p - q).clamp(min=0)


def proper(q: torch.Tensor) -> torch.Tensor:
    """Without what is no probability (NaN, negative, above 1): the engine's kernel counts such an entry as 0."""
    return torch.where((q >= 0) & (q <= 1), q, torch.zeros_like(q))


def draw(weights: torch.Tensor, otherwise: torch.Tensor, coins: torch.Tensor) -> torch.Tensor:
    """One token a row by inverting the cumulated weights, [rows]; where rounding left no weight at all, from `otherwise`."""
    weights = torch.where(weights.sum(1, keepdim=True) > 0, weights, otherwise)
    cumulated = weights.cumsum(1)
    return torch.searchsorted(cumulated, coins.double().unsqueeze(1) * cumulated[:, -1:], right=True).squeeze(1)


def longest_block(
    ratios: torch.Tensor, coins: torch.Tensor, p: torch.Tensor, q: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """(drafts accepted, [batch]; what scales p in the residual behind them, [batch]) when the chain is judged as one block.

    With r_0 = 1, r_i = min(1, r_{i-1} p_i / q_i) and m_i = sum (r_i p - q)+ at the position behind draft i, the block of i
    drafts passes with probability m_i / (m_i + 1 - r_i), the whole chain with r_n; the longest block that passes counts.
    """
    batch, drafts = ratios.shape
    accepted = torch.zeros(batch, dtype=torch.long)
    scale = torch.ones(batch, dtype=torch.double)
    reach = torch.ones(batch, dtype=torch.double)
    for i in range(1, drafts + 1):
        reach = (reach * ratios[:, i - 1]).clamp(max=1)
        passes = reach
        if i < drafts:
            mass = residual(reach[:, None] * p[:, i], q[:, i]).sum(1)
            passes = torch.where(reach < 1, mass / (mass + 1 - reach).clamp(min=torch.finfo(mass.dtype).tiny), reach)
        passed = coins[:, i - 1] < passes
        accepted = torch.where(passed, i, accepted)
        scale = torch.where(passed, reach, scale)
    return accepted, scale


def siblings(first: int, sibling: list[int]) -> list[int]:
    """The nodes in a row of siblings."""
    found: list[int] = []
    while first != NO_NODE:
        found.append(first)
        first = sibling[first]
        if len(found) > len(sibling):
            raise MalformedTreeError("tree_speculative_sampling_target_only: the siblings form a ring.")
    return found


def chosen_child(
    children: list[tuple[int, int, float]], coin: float, threshold_single: float, threshold_acc: float
) -> int:
    """Of (node, token, p) the node into whose piece of the unit interval the coin falls, or NO_NODE.

    A token that two siblings carry counts once.
    """
    mass, seen = 0.0, set()
    for node, token, p in children:
        if token in seen:
            continue
        seen.add(token)
        mass += p
        if coin < mass / threshold_acc or p >= threshold_single:
            return node
    return NO_NODE


def _check(
    op: str,
    predicts: torch.Tensor,
    accept_index: torch.Tensor,
    candidates: torch.Tensor,
    retrive_index: torch.Tensor,
    uniform_samples: torch.Tensor,
    target_probs: torch.Tensor,
) -> int:
    """Nodes of a request, the root included."""
    batch, nodes = candidates.shape
    bounds.equal(op, "predicts' length", predicts.numel(), batch * nodes)
    bounds.equal(op, "accept_index's rows", accept_index.shape[0], batch)
    bounds.equal(op, "target_probs' positions", tuple(target_probs.shape[:2]), (batch, nodes))
    bounds.equal(op, "uniform_samples' shape", tuple(uniform_samples.shape), (batch, nodes))
    bounds.inside(op, "candidates", candidates, target_probs.shape[2])
    bounds.inside(op, "retrive_index", retrive_index, batch * nodes)
    return nodes
