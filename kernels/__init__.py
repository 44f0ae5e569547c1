"""The operations of a pass, as pure functions on tensors. Nothing here knows a request.

One file an operation. Each holds a public function that looks at the tensors' device, the CPU version, a plain
`*_reference` that says what is meant in obvious torch, and a Triton kernel where one exists (slot mapping, store K/V).
CUDA tensors without a Triton kernel take a plain torch version. Reading order, as a token meets them:

    flat_index         row and column to an index, in 64 bits whatever comes in
    slot_mapping       positions and block tables to slots of the KV cache
    rms_norm, linear, rotary_embedding
    store_kv           a pass's keys and values into their slots
    paged_attention    queries against the blocks, where they lie
    silu_and_mul
    sampling           logits to token ids

`cpu` holds what the compiled CPU versions share (numba, bfloat16 as bits, threads), `triton_support` the optional
import. `warmup.warmup(dtype)` compiles everything a model of that dtype needs, so that no request waits for it.
"""
