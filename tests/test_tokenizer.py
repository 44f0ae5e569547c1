"""Text to ids and back: the default model's tokenizer, tiny's, and those of folders and other GGUF files."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from engine.chat_template import render_chat_template
from engine.config import ConfigError, ModelConfig
from engine.gguf_metadata import GGUFMetadata
from engine.model_source import resolve
from engine.tokenizer import Tokenizer
from engine.tokenizer_parts import byte_alphabet, parts_of_gguf

TEXTS = [
    "The capital of France is",
    "Zażółć gęślą jaźń",
    "日本語のテキスト",
    "مرحبا بالعالم",
    "emoji 😀👩‍👩‍👧 and 🇫🇷",
    "  leading, trailing  \n\n\ttabs ",
    "def f(x):\n    return x ** 2  # 100%",
    "",
]
CHAT = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def smollm2_tokenizer():
    return Tokenizer.load(resolve(ModelConfig(model="smollm2")))


@pytest.fixture(scope="module")
def tiny_tokenizer():
    return Tokenizer.load(resolve(ModelConfig(model="tiny")))


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("tokenizer", ["smollm2_tokenizer", "tiny_tokenizer"])
def test_text_survives_the_round_trip(tokenizer, text, request):
    tokenizer = request.getfixturevalue(tokenizer)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert b"".join(map(tokenizer.token_bytes, ids)) == text.encode()


def test_smollm2_words_are_tokens_and_no_begin_token_is_added(smollm2_tokenizer):
    ids = smollm2_tokenizer.encode("The capital of France is")
    assert ids == [504, 3575, 282, 4649, 314]
    assert [smollm2_tokenizer.token_bytes(i) for i in ids] == [b"The", b" capital", b" of", b" France", b" is"]


def test_smollm2_digits_are_single_tokens(smollm2_tokenizer):
    pieces = [smollm2_tokenizer.token_bytes(i) for i in smollm2_tokenizer.encode("in 2024: 31.5")]
    assert pieces == [b"in", b" ", b"2", b"0", b"2", b"4", b":", b" ", b"3", b"1", b".", b"5"]


def test_special_tokens_are_recognized_in_text(smollm2_tokenizer):
    ids = smollm2_tokenizer.encode("<|im_start|>user\nHi<|im_end|>")
    assert (ids[0], ids[-1]) == (1, 2)
    assert smollm2_tokenizer.is_special(1)
    assert not smollm2_tokenizer.is_special(ids[1])
    assert smollm2_tokenizer.token_bytes(1) == b"<|im_start|>"
    assert smollm2_tokenizer.decode(ids) == "user\nHi"
    assert smollm2_tokenizer.decode(ids, skip_special_tokens=False) == "<|im_start|>user\nHi<|im_end|>"
    assert smollm2_tokenizer.eos_token_id == 2
    assert smollm2_tokenizer.vocab_size == 49152


def test_smollm2_chat_template(smollm2_tokenizer):
    system = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    turn = "<|im_start|>user\nHi<|im_end|>\n"
    assert smollm2_tokenizer.apply_chat_template(CHAT) == system + turn + "<|im_start|>assistant\n"
    assert smollm2_tokenizer.apply_chat_template(CHAT, add_generation_prompt=False) == system + turn


def test_every_token_has_bytes_and_the_bytes_of_one_make_up_its_text(smollm2_tokenizer):
    for token_id in range(0, smollm2_tokenizer.vocab_size, 7):
        raw = smollm2_tokenizer.token_bytes(token_id)
        assert raw
        assert smollm2_tokenizer.decode([token_id], skip_special_tokens=False) == raw.decode(errors="replace")


def test_threads_may_encode_at_once(smollm2_tokenizer):
    texts = [f"{text} {n}" for n in range(20) for text in TEXTS]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(smollm2_tokenizer.encode, texts * 3))
    assert together == [smollm2_tokenizer.encode(text) for text in texts] * 3


def test_tiny_ids_are_bytes(tiny_tokenizer):
    assert tiny_tokenizer.encode("Aé") == [0x41, 0xC3, 0xA9]
    assert tiny_tokenizer.encode("<|im_end|>") == [258]
    assert tiny_tokenizer.eos_token_id == 256
    assert tiny_tokenizer.vocab_size == 320
    assert tiny_tokenizer.decode([0x41, 319]) == "A w319"
    assert "Hi" in tiny_tokenizer.apply_chat_template(CHAT)


def test_the_byte_alphabet_has_256_different_characters():
    alphabet = byte_alphabet()
    assert len(set(alphabet)) == 256
    assert (alphabet[ord("a")], alphabet[ord(" ")], alphabet[ord("\n")]) == ("a", "Ġ", "Ċ")


def _gguf_tokenizer(values, template=None):
    named = {f"tokenizer.ggml.{name}": value for name, value in values.items()}
    metadata = GGUFMetadata("m.gguf", named | {"tokenizer.chat_template": template}, frozenset())
    return Tokenizer(parts_of_gguf(metadata), {"vocab_size": len(values["tokens"])})


def _byte_level_values(**changes):
    tokens = [*byte_alphabet(), "12", "123", "hi", "<end>", "<tool>"]
    merges = ["1 2", "12 3", "h i"]
    kinds = [1] * 259 + [3, 4]
    return {"model": "gpt2", "tokens": tokens, "merges": merges, "token_type": kinds, "eos_token_id": 259} | changes


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("smollm", [b"1", b"2", b"3", b"hi"]),
        ("qwen2", [b"1", b"2", b"3", b"hi"]),
        ("llama-bpe", [b"123", b"hi"]),
        ("default", [b"123", b"hi"]),
    ],
)
def test_digits_are_split_as_the_file_says(pre, pieces):
    tokenizer = _gguf_tokenizer(_byte_level_values(pre=pre))
    assert [tokenizer.token_bytes(i) for i in tokenizer.encode("123hi")] == pieces


def test_a_user_defined_token_is_one_token_but_not_special():
    tokenizer = _gguf_tokenizer(_byte_level_values())
    assert tokenizer.encode("<tool><end>") == [260, 259]
    assert not tokenizer.is_special(260)
    assert tokenizer.decode([260, 259]) == "<tool>"


def test_the_begin_token_is_added_when_the_file_says_so():
    tokenizer = _gguf_tokenizer(_byte_level_values(add_bos_token=True, bos_token_id=259))
    assert tokenizer.encode("hi") == [259, 258]
    assert tokenizer.encode("hi", add_special_tokens=False) == [258]


def _sentence_piece_values(**changes):
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    words = {"▁": -9.0, "a": -9.0, "b": -9.0, "ab": -1.0, "ba": -2.0, "▁ab": -3.0}
    kinds = [2, 3, 3, *[6] * 256, *[1] * len(words)]
    scores = [0.0] * 259 + list(words.values())
    ids = {"bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0}
    return {"model": "llama", "tokens": tokens + list(words), "scores": scores, "token_type": kinds} | ids | changes


def test_sentence_piece_merges_the_best_score_first():
    tokenizer = _gguf_tokenizer(_sentence_piece_values())
    ids = tokenizer.encode("abab ba")
    assert ids[0] == 1  # this kind adds the begin token unless told otherwise
    assert [tokenizer.token_bytes(i) for i in ids[1:]] == [b" ab", b"ab", b" ", b"ba"]
    assert tokenizer.decode(ids) == "abab ba"


def test_sentence_piece_falls_back_to_bytes():
    tokenizer = _gguf_tokenizer(_sentence_piece_values(add_bos_token=False))
    ids = tokenizer.encode("é")
    assert [tokenizer.token_bytes(i) for i in ids] == [b" ", b"\xc3", b"\xa9"]
    assert tokenizer.decode(ids) == "é"


@pytest.mark.parametrize(
    ("changes", "named"), [({"model": "rwkv"}, "rwkv"), ({"pre": "exotic"}, "exotic"), ({"tokens": []}, "no tokenizer")]
)
def test_unknown_kinds_are_refused_by_name(changes, named):
    with pytest.raises(ConfigError, match=named):
        _gguf_tokenizer(_byte_level_values(**changes))


def test_metadata_without_merges_is_refused():
    values = _byte_level_values()
    del values["merges"]
    with pytest.raises(ConfigError, match="lacks 'merges'"):
        _gguf_tokenizer(values)


@pytest.fixture
def folder(tmp_path):
    """A model folder whose tokenizer.json adds a begin token and whose vocabulary is smaller than the model's."""
    vocab = {char: i for i, char in enumerate(byte_alphabet())}
    backend = Backend(models.BPE(vocab, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken("<s>"), AddedToken("</s>")])
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 256)])
    backend.enable_truncation(4)
    backend.save(str(tmp_path / "tokenizer.json"))
    settings = {"bos_token": {"content": "<s>"}, "eos_token": "</s>", "chat_template": "{{ bos_token }}{{ messages }}"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    return tmp_path


def _load_folder(folder):
    return Tokenizer.load(ModelConfig(path=str(folder), hf_config={"vocab_size": 300, "eos_token_ids": [257, 3]}))


def test_a_folder_tokenizes_as_its_files_say_and_never_truncates(folder):
    tokenizer = _load_folder(folder)
    assert tokenizer.encode("abcdef") == [256, *b"abcdef"]
    assert tokenizer.encode("ab", add_special_tokens=False) == [*b"ab"]
    assert (tokenizer.eos_token_id, tokenizer.eos_token_ids) == (257, [257, 3])
    assert tokenizer.is_special(257)
    assert tokenizer.token_bytes(299) == b""  # an id that no token has
    assert tokenizer.apply_chat_template(CHAT).startswith("<s>[{")


def test_a_template_file_comes_before_the_settings(folder):
    (folder / "chat_template.jinja").write_text("from the file")
    assert _load_folder(folder).apply_chat_template(CHAT) == "from the file"


def test_of_several_templates_the_default_one_is_used(folder):
    named = [{"name": "tool", "template": "t"}, {"name": "default", "template": "d"}]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    assert _load_folder(folder).apply_chat_template(CHAT) == "d"


def test_without_a_template_chat_is_refused(folder):
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(ValueError, match="no chat template"):
        _load_folder(folder).apply_chat_template(CHAT)


@pytest.mark.parametrize("content", [None, "{", '{"version": "1.0"}'])
def test_a_missing_or_broken_tokenizer_file_is_named(folder, content):
    path = folder / "tokenizer.json"
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(ConfigError, match=r"tokenizer\.json"):
        _load_folder(folder)


def test_templates_get_the_functions_they_expect():
    assert render_chat_template("{{ strftime_now('%Y') }}", CHAT).startswith("20")
    assert render_chat_template("{{ messages | tojson }}", [{"role": "<é>"}]) == '[{"role": "<é>"}]'
    assert render_chat_template("{% for m in messages %}x{% break %}{% endfor %}", CHAT * 2) == "x"
    with pytest.raises(ValueError, match="roles must alternate"):
        render_chat_template("{{ raise_exception('roles must alternate') }}", CHAT)


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{% if %}",
    ],
)
def test_a_hostile_or_broken_template_is_a_clear_error(template):
    with pytest.raises(ValueError, match="chat template refuses"):
        render_chat_template(template, CHAT)
