"""Our model's logits are those of transformers, whatever the split of the batch into passes."""

from pathlib import Path

import pytest
import torch
import transformers
from helpers.paged_driver import PagedDriver, greedy, worst_difference

from engine.config import ModelConfig
from engine.model_source import resolve
from engine.tokenizer import Tokenizer
from runner.loader import load_model
from runner.loader.converted import convert_gguf

CPU = torch.device("cpu")
TOLERANCE = 1e-3

SIZES = {
    "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 120, "max_position_embeddings": 64,
}  # fmt: skip
VARIANTS = {
    "llama": ("Llama", {}),
    "llama-tied": ("Llama", {"tie_word_embeddings": True, "rope_theta": 500.0}),
    "llama-biased": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama-wide-heads": ("Llama", {"head_dim": 32}),
    "llama-mha": ("Llama", {"num_key_value_heads": 4}),
    "mistral": ("Mistral", {"sliding_window": None}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {"head_dim": 16}),
}
LENGTHS = [13, 22, 9, 1]
MIXED_PASSES = {
    "prefill": [[(0, 13), (1, 22), (2, 9), (3, 1)]],
    "chunked prefill": [[(1, 7), (0, 13)], [(2, 4), (1, 10)], [(1, 5), (3, 1), (2, 5)]],
    "decode": [[(0, 10), (1, 19), (2, 6)], *[[(2, 1), (0, 1), (1, 1)]] * 3],
    "chunks beside decodes": [[(0, 9), (1, 3)], [(0, 1), (1, 8), (2, 2)], [(2, 7), (0, 1), (1, 1)], [(1, 10), (3, 1)]],
}


def random_sequences(vocab_size, lengths):
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(vocab_size, (n,), generator=generator).tolist() for n in lengths]


def reference_logits(reference, sequences):
    with torch.inference_mode():
        return [reference(torch.tensor([ids])).logits[0] for ids in sequences]


def random_reference(family, changes):
    """Return a transformers model whose weights are large enough that a wrong one shows in the logits."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**SIZES | changes)
    reference = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    for name, parameter in reference.named_parameters():
        center = 1.0 if name.endswith("norm.weight") else 0.0
        torch.nn.init.normal_(parameter, mean=center, std=0.25)
    return reference


@pytest.fixture(scope="module", params=VARIANTS)
def pair(request, tmp_path_factory):
    """A small random transformers model, and ours on the same weights by way of a saved folder."""
    family, changes = VARIANTS[request.param]
    reference = random_reference(family, changes)
    folder = tmp_path_factory.mktemp(request.param)
    reference.save_pretrained(folder)
    ours = load_model(resolve(ModelConfig(model=str(folder), dtype="float32")), CPU)
    return reference, ours


@pytest.mark.parametrize("passes", MIXED_PASSES.values(), ids=MIXED_PASSES)
def test_logits_agree_with_transformers(pair, passes):
    reference, ours = pair
    sequences = random_sequences(SIZES["vocab_size"], LENGTHS)
    expected = reference_logits(reference, sequences)
    assert expected[1].std() > 0.5  # otherwise the comparison would prove nothing
    assert worst_difference(PagedDriver(ours, sequences), passes, expected) < TOLERANCE


@pytest.fixture(scope="module")
def smollm2():
    return resolve(ModelConfig(model="smollm2", dtype="float32"))


@pytest.fixture(scope="module")
def smollm2_model(smollm2):
    return load_model(smollm2, CPU)


def transformers_smollm2(config):
    """Return transformers' Llama on the float32 weights that our loader left in the cache folder."""
    settings = {name: value for name, value in config.hf_config.items() if name not in ("rope_theta", "architectures")}
    rope = {"rope_type": "default", "rope_theta": config.hf_config["rope_theta"]}
    hf_config = transformers.LlamaConfig(**settings, rope_parameters=rope, attn_implementation="eager")
    with torch.device("meta"):
        reference = transformers.LlamaForCausalLM(hf_config)
    checkpoint = convert_gguf(Path(config.path), config.hf_config, torch.float32, Path(config.download_dir))
    tensors = {name: checkpoint.read(name) for name in checkpoint.names()}
    reference.load_state_dict(tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"]}, assign=True)
    reference.model.rotary_emb = type(reference.model.rotary_emb)(hf_config)
    return reference.eval()


def test_smollm2_agrees_with_transformers_on_its_dequantized_weights(smollm2, smollm2_model):
    reference = transformers_smollm2(smollm2)
    prompt = Tokenizer.load(smollm2).encode("The quick brown fox jumps over the lazy dog, and 42 birds sing.")
    sequences = [prompt, *random_sequences(49152, [30, 5])]
    passes = [[(0, 7), (1, 20)], [(1, 9), (0, len(prompt) - 8), (2, 4)], [(2, 1), (0, 1), (1, 1)]]
    expected = reference_logits(reference, sequences)
    assert worst_difference(PagedDriver(smollm2_model, sequences), passes, expected) < TOLERANCE


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_capital_of_france_is_paris(smollm2, smollm2_model, dtype):
    tokenizer = Tokenizer.load(smollm2)
    config = resolve(ModelConfig(model="smollm2", dtype=dtype))
    model = smollm2_model if dtype == "float32" else load_model(config, CPU)
    assert model.dtype == getattr(torch, dtype)
    tokens = greedy(model, tokenizer.encode("The capital of France is"), 2)
    assert tokenizer.decode(tokens).startswith(" Paris")


def test_the_tiny_model_is_the_same_in_every_dtype_and_its_output_varies():
    outputs = {}
    for dtype in ("float64", "float32"):
        model = load_model(resolve(ModelConfig(model="tiny", dtype=dtype)), CPU)
        outputs[dtype] = [greedy(model, prompt, 12) for prompt in (b"hello", b"other", b"x")]
    assert outputs["float64"] == outputs["float32"]
    assert all(len(set(tokens)) > 4 for tokens in outputs["float32"])
    assert len({tuple(tokens) for tokens in outputs["float32"]}) == 3


def test_the_tiny_model_takes_any_vocabulary():
    model = load_model(resolve(ModelConfig(model="tiny-49152")), CPU)
    logits = PagedDriver(model, [[49151, 0, 256]]).run([(0, 3)])
    assert logits.shape == (3, 49152)
    assert logits.dtype == torch.float32
    assert logits.isfinite().all()


def test_hidden_states_of_an_earlier_stage_are_refused():
    model = load_model(resolve(ModelConfig(model="tiny")), CPU)
    with pytest.raises(NotImplementedError, match="pipeline_parallel_size 1"):
        model(torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int64), {"hidden_states": None})


def test_attention_needs_a_forward_context():
    model = load_model(resolve(ModelConfig(model="tiny")), CPU)
    with pytest.raises(RuntimeError, match="no forward context"):
        model(torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int64))
