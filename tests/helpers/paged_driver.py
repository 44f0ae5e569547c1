"""Drive a model pass by pass over a paged cache, with forward contexts made by hand."""

import torch

from runner.forward_context import AttentionMetadata, set_forward_context

BLOCK_SIZE = 4


class PagedDriver:
    """Feeds known sequences to a model in any split into passes. Block ids are dealt out in a shuffled order."""

    def __init__(self, model, sequences):
        """`sequences`: token ids of each request."""
        self.model, self.sequences = model, sequences
        self.computed = [0] * len(sequences)
        blocks_each = [-(-len(ids) // BLOCK_SIZE) for ids in sequences]
        order = (1 + torch.randperm(sum(blocks_each), generator=torch.Generator().manual_seed(0))).tolist()
        self.block_ids = [[order.pop() for _ in range(n)] for n in blocks_each]
        shape = (1 + sum(blocks_each), model.num_kv_heads, BLOCK_SIZE, model.head_dim)
        caches = [torch.full(shape, float("nan"), dtype=model.dtype) for _ in range(2 * model.num_layers)]
        model.bind_kv_cache(list(zip(caches[::2], caches[1::2], strict=True)))

    def run(self, scheduled):
        """Run one pass over [(sequence, number of new tokens), ...] in row order. Returns the logits of every token."""
        ids, positions, slots, starts = [], [], [], [0]
        for sequence, count in scheduled:
            first = self.computed[sequence]
            span = range(first, first + count)
            ids += [self.sequences[sequence][p] for p in span]
            positions += span
            slots += [self.block_ids[sequence][p // BLOCK_SIZE] * BLOCK_SIZE + p % BLOCK_SIZE for p in span]
            starts.append(starts[-1] + count)
            self.computed[sequence] += count
        with set_forward_context(self._metadata(scheduled, slots, starts)), torch.inference_mode():
            hidden = self.model(torch.tensor(ids, dtype=torch.int32), torch.tensor(positions))
            return self.model.compute_logits(hidden)

    def _metadata(self, scheduled, slots, starts):
        rows = [self.block_ids[sequence] for sequence, _ in scheduled]
        table = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.int32)
        for row, block_ids in enumerate(rows):
            table[row, : len(block_ids)] = torch.tensor(block_ids)
        lengths = [self.computed[sequence] for sequence, _ in scheduled]
        return AttentionMetadata(
            num_actual_tokens=len(slots),
            max_query_len=max(count for _, count in scheduled),
            max_seq_len=max(lengths),
            query_start_loc=torch.tensor(starts, dtype=torch.int32),
            seq_lens=torch.tensor(lengths, dtype=torch.int32),
            block_table=table,
            slot_mapping=torch.tensor(slots),
        )


def greedy(model, prompt, count):
    """Return the `count` tokens that follow `prompt` (a list of ids) at temperature 0."""
    ids = list(prompt)
    driver = PagedDriver(model, [ids + [0] * count])
    logits = driver.run([(0, len(prompt))])
    for n in range(count):
        token = int(logits[-1].argmax())
        ids.append(token)
        driver.sequences[0][len(prompt) + n] = token
        if n + 1 < count:
            logits = driver.run([(0, 1)])
    return ids[len(prompt) :]


def worst_difference(driver, passes, expected):
    """Run the passes and return the largest difference from `expected`, each sequence's logits [length, vocab]."""
    worst = 0.0
    for scheduled in passes:
        before = [driver.computed[sequence] for sequence, _ in scheduled]
        pieces = driver.run(scheduled).split([count for _, count in scheduled])
        for (sequence, count), first, logits in zip(scheduled, before, pieces, strict=True):
            wanted = expected[sequence][first : first + count]
            worst = max(worst, (logits - wanted).abs().nan_to_num(float("inf")).max().item())
    return worst
