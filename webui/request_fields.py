"""What a completion and a chat completion may both ask for: OpenAI's fields and vLLM's additions."""

from typing import Annotated, Any, Literal, Self

import msgspec

from engine.sampling_params import SamplingParams
from webui.errors import ApiError, refusal
from webui.json_body import convert

Int = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
Count = Annotated[int, msgspec.Meta(ge=1, le=10_000)]

# Fields that would change the answer and that the engine does not know, with the values that change nothing.
NOT_AVAILABLE: dict[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "suffix": ("",),
    "use_beam_search": (False,),
    "length_penalty": (1,),
    "truncate_prompt_tokens": (),
    "logits_processors": ([],),
    "prompt_embeds": (),
    "return_token_ids": (False,),
    "return_tokens_as_token_ids": (False,),
    "spaces_between_special_tokens": (True,),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "service_tier": ("auto", "default"),
    "store": (False,),
}
INSTEAD = {name: "structured_outputs" for name in NOT_AVAILABLE if name.startswith("guided_")}
SAMPLING_FIELDS = (
    "n", "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty",
    "seed", "min_tokens", "stop", "stop_token_ids", "ignore_eos", "include_stop_str_in_output", "skip_special_tokens",
    "logit_bias", "allowed_token_ids", "bad_words", "prompt_logprobs",
)  # fmt: skip


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: Literal[False] | None = None


class StructuredOutputs(msgspec.Struct, forbid_unknown_fields=True):
    """One of these forms of constraint on the answer, as in vLLM."""

    json: str | dict[str, Any] | None = None
    json_object: Literal[True] | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None


class TextFormat(msgspec.Struct, tag_field="type", tag="text", forbid_unknown_fields=True):
    pass


class JsonObjectFormat(msgspec.Struct, tag_field="type", tag="json_object", forbid_unknown_fields=True):
    pass


class NamedSchema(msgspec.Struct, forbid_unknown_fields=True):
    """`strict` makes no difference: the grammar always holds."""

    name: str
    schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None


class JsonSchemaFormat(msgspec.Struct, tag_field="type", tag="json_schema", forbid_unknown_fields=True):
    json_schema: NamedSchema


class RequestFields(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Null means the default, and a field that is not here is refused: nothing that is sent is passed over."""

    model: str | None = None
    n: Count | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: Int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    min_tokens: Int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[Int] | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    logit_bias: dict[str, float] | None = None
    allowed_token_ids: list[Int] | None = None
    bad_words: list[str] | None = None
    prompt_logprobs: Int | None = None
    response_format: TextFormat | JsonObjectFormat | JsonSchemaFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    priority: Int = 0
    request_id: str | None = None
    cache_salt: str | None = None
    # Who asks and why: no answer depends on these.
    user: str | None = None
    metadata: dict[str, str] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None

    @classmethod
    def read(cls, body: dict[str, Any]) -> Self:
        """Raises ApiError 400 for a wrong type, a field that is missing, and one that cannot be honoured."""
        request = convert({name: value for name, value in body.items() if not cls._changes_nothing(name, value)}, cls)
        if request.stream_options is not None and not request.stream:
            raise ApiError(400, "stream_options needs stream to be true", "stream_options")
        if request.stream and request.prompt_logprobs is not None:
            raise ApiError(400, "prompt_logprobs needs stream to be false", "prompt_logprobs")
        return request

    @classmethod
    def not_available(cls) -> dict[str, tuple[Any, ...]]:
        """Return the fields that cannot be honoured, with the values that may be sent all the same."""
        return NOT_AVAILABLE

    @classmethod
    def _changes_nothing(cls, name: str, value: Any) -> bool:
        neutral = cls.not_available().get(name)
        if neutral is None:
            return False
        if value is not None and value not in neutral:
            instead = f"use {INSTEAD[name]}" if name in INSTEAD else "leave it out"
            raise ApiError(400, f"{name} is not available: {instead}", name)
        return True

    @property
    def usage_in_stream(self) -> str:
        """When a stream tells of usage: "none", "last" (in a last chunk) or "each" (in every chunk as well)."""
        options = self.stream_options
        if options is None or not options.include_usage:
            return "none"
        return "each" if options.continuous_usage_stats else "last"

    def make_params(self, **more: Any) -> SamplingParams:
        """Return the sampling parameters, with what each kind of request adds. Raises ApiError 400."""
        values = {name: getattr(self, name) for name in SAMPLING_FIELDS}
        if "structured_outputs" not in more and (constraint := self._constraint()):
            more["structured_outputs"] = constraint
        try:
            return SamplingParams.make(**values, **more)
        except ValueError as error:
            raise refusal(error) from None

    def _constraint(self) -> dict[str, Any] | None:
        """Return the one constraint on the answer, under the names of StructuredOutputsParams."""
        constraints: list[dict[str, Any]] = []
        if self.structured_outputs is not None:
            given = msgspec.structs.asdict(self.structured_outputs)
            constraints.append({name: value for name, value in given.items() if value is not None})
        if isinstance(self.response_format, JsonObjectFormat):
            constraints.append({"json_object": True})
        if isinstance(self.response_format, JsonSchemaFormat):
            constraints.append({"json": self.response_format.json_schema.schema})
        if len(constraints) > 1:
            raise ApiError(400, "give response_format or structured_outputs, not both", "response_format")
        return constraints[0] if constraints else None
