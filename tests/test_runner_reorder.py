"""With a threshold set, rows are grouped as vLLM 0.32 groups them: decodes, short extends, long extends, prefills."""

import numpy as np
import pytest
import torch

from engine.config import EngineConfig
from engine.model_source import resolve
from engine.sampling_params import SamplingParams
from runner.cached_request import CachedRequestState
from runner.input_batch import InputBatch
from runner.logits_processors import LogitsProcessors
from runner.reorder import DECODE, LONG_EXTEND, PREFILL, SHORT_EXTEND, regions, reorder_batch

# (prompt, computed, scheduled) that make a row of each region at threshold 2
KINDS = {DECODE: (5, 7, 1), SHORT_EXTEND: (9, 4, 2), LONG_EXTEND: (20, 4, 8), PREFILL: (6, 0, 6)}


def batch_of(kinds):
    """A batch whose row i is request i of the given region; its single block is 100 + i."""
    cpu = torch.device("cpu")
    config = EngineConfig.make(model="tiny", max_num_seqs=len(kinds))
    config.model_config = resolve(config.model_config)
    batch = InputBatch(len(kinds), 64, 64, 4, cpu, LogitsProcessors(config, cpu))
    scheduled = {}
    for i, kind in enumerate(kinds):
        prompt, computed, scheduled[str(i)] = KINDS[kind]
        outputs = [1] * max(computed - prompt + 1, 0)
        params = SamplingParams(temperature=0.5, top_k=i + 1)
        batch.add_request(CachedRequestState(str(i), [i] * prompt, params, ([100 + i],), computed, i, outputs))
    return batch, scheduled


def region_of_rows(batch, scheduled):
    n = batch.num_reqs
    counts = np.array([scheduled[req_id] for req_id in batch.req_ids])
    return regions(counts, batch.num_computed_tokens_cpu[:n], batch.num_prompt_tokens[:n], threshold=2).tolist()


def vllm_order(kinds):
    """Rows that stand in their region stay; the others share the places left, by region and then as they stood."""
    target = sorted(kinds)
    misplaced = [i for i, kind in enumerate(kinds) if kind != target[i]]
    order = list(range(len(kinds)))
    for place, row in zip(misplaced, sorted(misplaced, key=lambda i: kinds[i]), strict=True):
        order[place] = row
    return order


@pytest.mark.parametrize("seed", range(40))
def test_any_batch_ends_in_vllms_order_and_everything_follows_its_row(seed):
    source = np.random.default_rng(seed)
    kinds = source.integers(0, 4, source.integers(1, 24)).tolist()
    batch, scheduled = batch_of(kinds)
    swaps = reorder_batch(batch, scheduled, threshold=2)
    assert region_of_rows(batch, scheduled) == sorted(kinds)
    order = vllm_order(kinds)
    assert batch.req_ids == [str(i) for i in order]
    for row, i in enumerate(order):
        assert batch.req_id_to_index[str(i)] == row
        state = batch.row_state(row)
        assert (state["block_table"], state["top_k"]) == ([100 + i], i + 1)
        assert state["token_ids"][: KINDS[kinds[i]][0]] == [i] * KINDS[kinds[i]][0]
    replayed = list(range(len(kinds)))
    for a, b in swaps:
        replayed[a], replayed[b] = replayed[b], replayed[a]
    assert replayed == order


def test_a_batch_in_order_is_left_alone():
    batch, scheduled = batch_of([DECODE, DECODE, SHORT_EXTEND, LONG_EXTEND, PREFILL])
    batch.refresh_metadata()
    assert reorder_batch(batch, scheduled, threshold=2) == []
    assert batch.refresh_metadata() is False


def test_a_cycle_over_all_four_regions_takes_three_swaps():
    batch, scheduled = batch_of([PREFILL, DECODE, SHORT_EXTEND, LONG_EXTEND])
    assert len(reorder_batch(batch, scheduled, threshold=2)) == 3
    assert batch.req_ids == ["1", "2", "3", "0"]
