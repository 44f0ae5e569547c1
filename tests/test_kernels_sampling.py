"""Greedy and random sampling: who may be drawn, how often, and that a seeded row draws for itself alone."""

import itertools

import numpy as np
import pytest
import torch

from kernels import sampling
from kernels.sampling import _mix, greedy_sample, random_sample, random_sample_reference, uniform


def sample(logits, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seeds=None, counters=None):
    """Call random_sample with one value for all rows where a single one is given."""
    rows = len(logits)

    def spread(x, dtype):
        return torch.as_tensor(x, dtype=dtype).expand(rows)

    floats = (spread(x, torch.float32) for x in (temperature, top_p, min_p))
    temperature, top_p, min_p = floats
    seeds = torch.arange(rows) if seeds is None else seeds
    counters = torch.zeros(rows, dtype=torch.int64) if counters is None else counters
    return random_sample(logits, temperature, spread(top_k, torch.int64), top_p, min_p, seeds, counters)


def chi_square(logits, draws=40_000, **filters):
    """Chi-square of draws from one row of logits against its probabilities, over the ids that may be drawn."""
    kept = filters.pop("kept", torch.ones_like(logits, dtype=torch.bool))
    drawn = sample(logits.expand(draws, -1), seeds=torch.full((draws,), 7), counters=torch.arange(draws), **filters)
    counts = torch.bincount(drawn, minlength=len(logits)).double()
    assert (counts[~kept] == 0).all()
    weights = (logits.double() / filters.get("temperature", 1.0)).exp() * kept
    expected = (weights / weights.sum() * draws)[kept]
    return float(((counts[kept] - expected) ** 2 / expected).sum())


def test_greedy_takes_the_lowest_of_equal_ids():
    logits = torch.tensor([[1.0, 5.0, 5.0, 2.0], [0.0, 0.0, 0.0, 0.0], [-torch.inf, -3.0, -torch.inf, -3.0]])
    assert greedy_sample(logits).tolist() == [1, 0, 1]


def test_mixing_is_splitmix64():
    golden = 0x9E3779B97F4A7C15
    states = [((1234567 + i * golden + 2**63) % 2**64) - 2**63 for i in (1, 2, 3)]
    known = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [x % 2**64 for x in _mix(torch.tensor(states)).tolist()] == known


def test_uniform_numbers_fill_the_unit_interval_evenly_over_counters_and_over_seeds():
    numbers = torch.arange(100_000)
    for seeds, counters in [(numbers * 0 + 42, numbers), (numbers, numbers * 0 + 5), (-numbers, numbers)]:
        u = uniform(seeds, counters)
        assert 0 <= float(u.min()) < float(u.max()) < 1
        counts = torch.histc(u.float(), 100, 0, 1)
        assert float(((counts - 1000) ** 2 / 1000).sum()) < 149  # chi-square, 99 degrees, p = 0.001
        assert abs(float(torch.corrcoef(torch.stack([u[:-1], u[1:]]))[0, 1])) < 0.01


# Thresholds: chi-square at p = 0.001 for the number of ids that may be drawn, less one.
def test_draws_follow_the_probabilities():
    logits = torch.linspace(-2, 1, 20)[torch.randperm(20, generator=torch.Generator().manual_seed(0))]
    assert chi_square(logits) < 43.8
    assert chi_square(logits, temperature=0.5) < 43.8


def test_draws_follow_the_probabilities_under_each_filter():
    logits = torch.tensor([0.4, 2.0, -1.0, 1.5, 0.0, 1.0])  # shares: .086 .426 .021 .259 .058 .157
    kept = torch.zeros(6, dtype=torch.bool)
    for ids, limit, filters in [
        ([1, 3, 5], 13.8, {"top_k": 3}),
        ([1, 3], 10.8, {"top_p": 0.68}),
        ([1, 3, 5], 13.8, {"top_p": 0.69}),
        ([1, 3, 5, 0], 16.3, {"min_p": 0.2}),
        ([1, 3], 10.8, {"top_k": 3, "top_p": 0.6}),
        ([1, 3, 5], 13.8, {"min_p": 0.3, "top_p": 0.85}),
    ]:
        mask = kept.clone()
        mask[ids] = True
        assert chi_square(logits, kept=mask, **filters) < limit, filters


@pytest.mark.parametrize("vocab", [5, 300, 5000])
def test_every_combination_of_filters_draws_what_the_reference_draws(vocab, monkeypatch):
    """On the CPU and by the operations that a GPU runs."""
    generator = torch.Generator().manual_seed(vocab)
    options = itertools.product([0.0, 0.3, 1.0, 5.0], [0, 1, 3, vocab + 9], [1.0, 0.9, 0.1], [0.0, 0.05, 1.0])
    temperature, top_k, top_p, min_p = (torch.tensor(x) for x in zip(*options, strict=True))
    logits = torch.randn(len(top_k), vocab, generator=generator) * 4
    logits = logits.mul(8).round().div(8)  # many equal logits, as bfloat16 makes them
    seeds, counters = torch.arange(len(top_k)) * 977, torch.arange(len(top_k))
    drawn = sample(logits, temperature, top_k, top_p, min_p, seeds, counters)
    with monkeypatch.context() as patch:
        patch.setattr(sampling, "_random_sample_cpu", sampling._random_sample_torch)
        assert sample(logits, temperature, top_k, top_p, min_p, seeds, counters).tolist() == drawn.tolist()
    for row, token in enumerate(drawn.tolist()):
        filters = [float(x[row]) for x in (temperature, top_k, top_p, min_p)]
        filters[1] = int(filters[1])
        assert token == random_sample_reference(logits[row], *filters, int(seeds[row]), int(counters[row])), filters


@pytest.mark.parametrize("filters", [{}, {"top_p": 0.95}, {"top_k": 40}, {"min_p": 0.02, "top_p": 0.999, "top_k": 900}])
def test_a_seeded_row_draws_the_same_alone_and_among_others_and_when_it_moves(filters):
    """Seed 42, temperature 0.8, 16 tokens: beside seeded, greedy and other rows, in any row, many or one at a time."""
    generator = torch.Generator().manual_seed(3)
    steps = torch.randn(16, 2000, generator=generator).bfloat16().float() * 3
    alone = [
        sample(steps[i : i + 1], 0.8, seeds=torch.tensor([42]), counters=torch.tensor([100 + i]), **filters).item()
        for i in range(16)
    ]
    assert len(set(alone)) > 3
    for i in range(16):
        row, others = i % 5, torch.randn(5, 2000, generator=generator) * 3
        others[row] = steps[i]
        temperature, seeds = torch.tensor([0.0, 1.0, 3.0, 0.5, 0.0]), torch.tensor([1, 2, 3, 42, 5])
        temperature[row], seeds[row] = 0.8, 42
        mixed = {"top_k": [0, 1, 1500, 2, 0], "top_p": [1.0, 0.1, 1.0, 0.9, 1.0], "min_p": [0.0, 0.9, 0.0, 0.1, 0.0]}
        for name, values in mixed.items():
            values[row] = filters.get(name, {"top_k": 0, "top_p": 1.0, "min_p": 0.0}[name])
        drawn = sample(others, temperature, seeds=seeds, counters=torch.full((5,), 100 + i), **mixed)
        assert drawn[row].item() == alone[i]
    together = sample(steps, 0.8, seeds=np.full(16, 42), counters=np.arange(100, 116), **filters)
    assert together.tolist() == alone


def test_temperature_0_is_greedy_and_tiny_ones_neither_overflow_nor_divide_by_zero():
    logits = torch.randn(5, 300) * 1e4
    logits[:, 17] = 3e38
    assert sample(logits, [0.0, 1e-45, 1e-9, 1e-5, 1e-3]).tolist() == [17] * 5


def test_a_greedy_row_beside_random_ones_is_untouched():
    logits = torch.randn(6, 500)
    drawn = sample(logits, [0.0, 2.0, 0.0, 2.0, 2.0, 0.0])
    assert drawn[[0, 2, 5]].tolist() == greedy_sample(logits)[[0, 2, 5]].tolist()


def test_top_k_0_minus_1_and_above_the_vocabulary_are_off_and_1_is_argmax():
    logits = torch.zeros(4, 50)
    logits[:, 20:22] = 0.1
    unfiltered = sample(logits, seeds=torch.full((4,), 9))
    assert sample(logits, top_k=[0, -1, 51, 50], seeds=torch.full((4,), 9)).tolist() == unfiltered.tolist()
    assert sample(logits, top_k=1, temperature=9.0).tolist() == [20] * 4


def test_ids_of_weight_zero_are_never_drawn_even_at_the_ends():
    logits = torch.full((3000, 8), -torch.inf)
    logits[:, [2, 5]] = 0.0
    assert set(sample(logits).tolist()) == {2, 5}


def test_one_rows_nan_does_not_hurt_the_others():
    logits = torch.randn(4, 5000)
    for filters in ({}, {"top_p": 0.9, "top_k": 50, "min_p": 0.01}):
        clean, poisoned = sample(logits, **filters), logits.clone()
        poisoned[1] = torch.nan
        drawn = sample(poisoned, **filters)
        assert 0 <= drawn[1] < 5000
        assert drawn[[0, 2, 3]].tolist() == clean[[0, 2, 3]].tolist()


def test_values_far_apart_or_all_equal_are_filtered_exactly():
    """Bins between the lowest and the highest logit say nothing where one logit is far away, or all are one."""
    logits = torch.randn(6, 5000, generator=torch.Generator().manual_seed(8))
    logits[0, 9] = -1e30
    logits[1, 9] = 1e4
    logits[2, :] = 0.5
    logits[3, 100:] = -torch.inf
    logits[4, ::2] = 3e38
    logits[5] = logits[5].bfloat16().float()
    for filters in (
        {"top_k": 700},
        {"top_p": 0.7},
        {"top_k": 3000, "top_p": 0.9999},
        {"temperature": 50.0, "top_p": 0.5},
    ):
        values = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0} | filters
        for counter in range(3):
            drawn = sample(logits, **values, counters=torch.full((6,), counter))
            for row, token in enumerate(drawn.tolist()):
                filters = [float(torch.tensor(value)) for value in values.values()]
                assert token == random_sample_reference(
                    logits[row], *filters[:1], int(filters[1]), *filters[2:], row, counter
                )


def test_the_logits_are_not_changed():
    logits = torch.randn(3, 400)
    before = logits.clone()
    sample(logits, 0.7, top_k=5, top_p=0.9, min_p=0.1)
    assert torch.equal(logits, before)
