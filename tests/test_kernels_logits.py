"""Penalties, grammar masks and log-probabilities equal their plain references."""

import pytest
import torch

from kernels import bitmask
from kernels.bitmask import apply_token_bitmask, apply_token_bitmask_reference
from kernels.logprobs import gather_logprobs, gather_logprobs_reference
from kernels.penalties import apply_penalties, apply_penalties_reference


def entries(prompts, outputs, penalties):
    """The flat arguments of apply_penalties for rows of (presence, frequency, repetition)."""
    rows = [
        (row, token_id, output.count(token_id), *penalties[row])
        for row, (prompt, output) in enumerate(zip(prompts, outputs, strict=True))
        for token_id in set(prompt) | set(output)
    ]
    columns = list(zip(*rows, strict=True))
    return [torch.tensor(column) for column in columns[:3]] + [torch.tensor(column) for column in columns[3:]]


def test_penalties_equal_the_reference():
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(6, 50, generator=generator) * 5
    prompts = [torch.randint(0, 50, (n,), generator=generator).tolist() for n in (1, 9, 30, 4, 2, 60)]
    outputs = [torch.randint(0, 50, (n,), generator=generator).tolist() for n in (0, 40, 3, 1, 7, 5)]
    penalties = [(0.3, 0.5, 1.0), (0.0, 0.0, 1.3), (-2.0, 2.0, 0.5), (0.0, 0.1, 9.0), (2.0, -2.0, 1.1), (0.0, 0.0, 2.0)]
    expected = apply_penalties_reference(logits, prompts, outputs, *zip(*penalties, strict=True))
    apply_penalties(logits, *entries(prompts, outputs, penalties))
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)


def test_a_token_twice_in_the_output_and_once_in_the_prompt_is_shifted_by_1_3():
    """CASES 16."""
    logits = torch.zeros(1, 8)
    apply_penalties(logits, *entries([[5, 2]], [[5, 1, 5]], [(0.3, 0.5, 1.0)]))
    assert logits[0].tolist() == pytest.approx([0, -0.8, 0, 0, 0, -1.3, 0, 0])


def test_repetition_counts_prompt_and_output_once_and_pushes_down_on_both_sides_of_zero():
    logits = torch.tensor([[2.0, -2.0, 2.0, 0.0]])
    apply_penalties(logits, *entries([[0, 1, 0]], [[0, 1]], [(0.0, 0.0, 2.0)]))
    assert logits.tolist() == [[1.0, -4.0, 2.0, 0.0]]


def test_what_is_forbidden_stays_forbidden():
    logits = torch.full((1, 2), -torch.inf)
    apply_penalties(logits, *entries([[0]], [[1]], [(-2.0, -2.0, 0.5)]))
    assert logits.tolist() == [[-torch.inf, -torch.inf]]


@pytest.mark.parametrize("vocab", [7, 32, 33, 1000, 40_000])
def test_each_mask_is_put_on_its_own_row(vocab):
    """The masks come in another order than the rows, and rows without one keep all."""
    generator = torch.Generator().manual_seed(vocab)
    words = -(-vocab // 32) + 1
    masks = torch.randint(-(2**31), 2**31, (3, words), dtype=torch.int32, generator=generator)
    masks[1, ::2] = -1
    rows = torch.tensor([4, 0, 2])
    logits = torch.randn(5, vocab, generator=generator)
    expected = apply_token_bitmask_reference(logits, masks, rows)
    on_device = logits.clone()
    bitmask._apply_torch(on_device, masks, rows)
    before = logits.clone()
    apply_token_bitmask(logits, masks, rows)
    assert torch.equal(logits, expected)
    assert torch.equal(on_device, expected)
    assert torch.equal(logits[[1, 3]], before[[1, 3]])


def test_a_mask_that_is_too_short_is_refused():
    with pytest.raises(ValueError, match="a bitmask of 1 words is too short for 33 tokens"):
        apply_token_bitmask(torch.zeros(1, 33), torch.zeros(1, 1, dtype=torch.int32), torch.tensor([0]))


@pytest.mark.parametrize("vocab", [5, 256, 5000, 40_000])
@pytest.mark.parametrize("wanted", [0, 1, 5, 5000])
def test_log_probabilities_equal_a_float32_log_softmax(vocab, wanted):
    logits = torch.randperm(4 * vocab, generator=torch.Generator().manual_seed(vocab)).view(4, vocab) / vocab * 3
    logits[1] *= 1e4
    logits[2, ::2] = -torch.inf
    token_ids = torch.tensor([0, 1, 2, 3])
    wanted = min(wanted, vocab // 2)
    got = gather_logprobs(logits, token_ids, wanted)
    expected = gather_logprobs_reference(logits, token_ids, wanted)
    for mine, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-6)
