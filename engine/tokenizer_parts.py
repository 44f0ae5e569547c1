"""Build the tokenizer of a model from what its files say: GGUF metadata, a folder, or nothing (tiny)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from engine.config import ConfigError
from engine.gguf_metadata import GGUFMetadata
from engine.model_source import TINY_SPECIAL_TOKENS, read_json

CONTROL, USER_DEFINED = 3, 4  # values of tokenizer.ggml.token_type
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@dataclass
class TokenizerParts:
    """A `tokenizers` object and what belongs beside it."""

    backend: Backend
    chat_template: str | None = None
    bos_token: str = ""
    eos_token: str = ""
    add_bos: bool = False  # prepend bos_token ourselves; False where the backend does it or nobody does
    special_ids: frozenset[int] = field(default_factory=frozenset)


def parts_of_tiny(vocab_size: int) -> TokenizerParts:
    """Return a tokenizer whose ids 0-255 are the bytes, then three specials, then " w259", " w260", ..."""
    alphabet = byte_alphabet()
    vocab = {alphabet[byte]: byte for byte in range(256)}
    vocab |= {token: 256 + n for n, token in enumerate(TINY_SPECIAL_TOKENS)}
    vocab |= {f"{alphabet[32]}w{n}": n for n in range(len(vocab), vocab_size)}
    backend = Backend(models.BPE(vocab, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in TINY_SPECIAL_TOKENS])
    end = TINY_SPECIAL_TOKENS[0]
    return TokenizerParts(backend, CHATML, bos_token=end, eos_token=end, special_ids=frozenset(range(256, 259)))


def parts_of_gguf(metadata: GGUFMetadata) -> TokenizerParts:
    """Return the tokenizer that the metadata describes. Raises ConfigError for a kind that is not implemented."""
    values = {
        name.removeprefix("tokenizer.ggml."): value
        for name, value in metadata.values.items()
        if name.startswith("tokenizer.ggml.")
    }
    if not values.get("tokens"):
        raise ConfigError(f"{metadata.path} holds no tokenizer: use a GGUF file that has one")
    kind = values.get("model")
    if kind not in _GGUF_BACKENDS:
        raise ConfigError(f"{metadata.path}: tokenizer {kind!r} is not implemented: use a model with gpt2 or llama")
    try:
        return _assemble(values, metadata)
    except (KeyError, IndexError) as error:
        raise ConfigError(f"{metadata.path}: the tokenizer lacks {error}: convert the model anew") from error


def _assemble(values: dict[str, Any], metadata: GGUFMetadata) -> TokenizerParts:
    kind, tokens = values["model"], values["tokens"]
    backend = _GGUF_BACKENDS[kind](values, metadata.path)
    kinds = values.get("token_type", ())
    special_ids = frozenset(i for i, token_kind in enumerate(kinds) if token_kind == CONTROL)
    added = [i for i, token_kind in enumerate(kinds) if token_kind in (CONTROL, USER_DEFINED)]
    backend.add_tokens([AddedToken(tokens[i], special=i in special_ids, normalized=False) for i in added])
    return TokenizerParts(
        backend,
        metadata.values.get("tokenizer.chat_template"),
        bos_token=_token_named("bos", values),
        eos_token=_token_named("eos", values),
        add_bos=values.get("add_bos_token", kind == "llama"),
        special_ids=special_ids,
    )


def _token_named(name: str, values: dict[str, Any]) -> str:
    token_id = values.get(f"{name}_token_id")
    return "" if token_id is None else values["tokens"][token_id]


def _byte_level(values: dict[str, Any], path: str) -> Backend:
    """Return a byte-level BPE (GPT-2's kind), with the word splitting that the file names."""
    name = values.get("pre", "default")
    if name not in _WORD_SPLITTERS:
        raise ConfigError(
            f"{path}: pre-tokenizer {name!r} is not implemented: use one of {', '.join(sorted(_WORD_SPLITTERS))}"
        )
    vocab = {token: token_id for token_id, token in enumerate(values["tokens"])}
    merges = [tuple(merge.split(" ", 1)) for merge in values["merges"]]
    backend = Backend(models.BPE(vocab, merges, ignore_merges=name == "llama-bpe"))
    if name == "qwen2":
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.Sequence(_WORD_SPLITTERS[name]())
    backend.decoder = decoders.ByteLevel()
    return backend


def _byte_splitter(words: str | None = None) -> list[Any]:
    """Split by a pattern, or by GPT-2's own, and write each byte as one printable character."""
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=words is None)
    return [byte_level] if words is None else [pre_tokenizers.Split(Regex(words), "isolated"), byte_level]


_WORD_SPLITTERS: dict[str, Callable[[], list[Any]]] = {
    "default": _byte_splitter,
    "gpt-2": _byte_splitter,
    "smollm": lambda: [pre_tokenizers.Digits(individual_digits=True), *_byte_splitter()],
    "llama-bpe": lambda: _byte_splitter(_WORDS % r"\p{N}{1,3}"),
    "qwen2": lambda: _byte_splitter(_WORDS % r"\p{N}"),
}


def _sentence_piece(values: dict[str, Any], path: str) -> Backend:
    """Return a SentencePiece BPE: spaces are U+2581, unknown characters fall back to <0xNN> byte tokens."""
    vocab = {token: token_id for token_id, token in enumerate(values["tokens"])}
    unknown = values["tokens"][values.get("unknown_token_id", 0)]
    backend = Backend(
        models.BPE(
            vocab, _merges_from_scores(vocab, values["scores"]), unk_token=unknown, fuse_unk=True, byte_fallback=True
        )
    )
    prefix = [normalizers.Prepend("▁")] if values.get("add_space_prefix", True) else []
    backend.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", "▁")])
    strip = [decoders.Strip(" ", left=1)] if prefix else []
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip],
    )
    return backend


def _merges_from_scores(vocab: dict[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """Return BPE merges, best score first: SentencePiece joins the pair whose union scores highest."""
    pairs = [
        (-scores[token_id], token[:cut], token[cut:])
        for token, token_id in vocab.items()
        for cut in range(1, len(token))
        if token[:cut] in vocab and token[cut:] in vocab
    ]
    return [(left, right) for _, left, right in sorted(pairs, key=lambda pair: pair[0])]


_GGUF_BACKENDS: dict[str, Callable[[dict[str, Any], str], Backend]] = {
    "gpt2": _byte_level,
    "llama": _sentence_piece,
}


def parts_of_folder(folder: Path) -> TokenizerParts:
    """Return the tokenizer of tokenizer.json, with its neighbours' chat template. Raises ConfigError without one."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ConfigError(f"{folder} has no tokenizer.json: add the one that belongs to the model")
    try:
        backend = Backend.from_file(str(path))
    except Exception as error:  # the tokenizers library raises plain Exception
        raise ConfigError(f"cannot read {path} ({error}): fetch it again") from error
    backend.no_truncation()
    backend.no_padding()
    settings_path = folder / "tokenizer_config.json"
    settings = read_json(settings_path) if settings_path.is_file() else {}
    special = (i for i, token in backend.get_added_tokens_decoder().items() if token.special)
    return TokenizerParts(
        backend,
        _folder_template(folder, settings),
        bos_token=_token_text(settings.get("bos_token")),
        eos_token=_token_text(settings.get("eos_token")),
        special_ids=frozenset(special),
    )


def _folder_template(folder: Path, settings: dict[str, Any]) -> str | None:
    """Return chat_template.jinja, else the settings' template, else (of several) the one named "default"."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):
        return {entry["name"]: entry["template"] for entry in template}.get("default")
    return template


def _token_text(token: str | dict[str, Any] | None) -> str:
    return token["content"] if isinstance(token, dict) else token or ""


def byte_alphabet() -> list[str]:
    """Return the printable character that byte-level BPE writes for each of the 256 bytes.

    Printable bytes of Latin-1 stand for themselves; the others take the code points from 256 on, in order.
    """
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = (n for n in range(256) if n not in printable)
    moved = {byte: chr(256 + place) for place, byte in enumerate(others)}
    return [moved.get(byte) or chr(byte) for byte in range(256)]
