"""The tiny model as a GGUF file, as llama.cpp's converter would write it."""

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize

from runner.loader.gguf_weights import OUTER_NAMES

HEADS, KV_HEADS, HEAD_DIM = 4, 2, 16


def permute(rows, heads):
    """Reorder rows as llama.cpp's converter does for the Llama architecture: rotary pairs become neighbours."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, -1)
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(rows.shape)


GGUF_PARTS = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip


def gguf_name(name):
    stem, kind = name.rsplit(".", 1)
    outer = {theirs: ours for ours, theirs in OUTER_NAMES.items()}
    if stem in outer:
        return f"{outer[stem]}.{kind}"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{GGUF_PARTS[part]}.{kind}"


def write_gguf(path, tensors, kind=GGMLQuantizationType.F32, architecture="llama"):
    """Write the tiny model as llama.cpp's converter would."""
    writer = GGUFWriter(str(path), architecture)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(128)
    writer.add_block_count(2)
    writer.add_context_length(1024)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_vocab_size(320)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    for name, tensor in tensors.items():
        values = tensor.numpy()
        if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
            values = permute(values, HEADS if "q_proj" in name else KV_HEADS)
        stored = quantize(values, kind) if values.ndim == 2 else values
        writer.add_tensor(gguf_name(name), stored, raw_dtype=kind if values.ndim == 2 else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
