"""The real engine core on the tiny model, for tests that compare a request's tokens with those it gets alone."""

from typing import Any

from engine.config import EngineConfig
from engine.core import EngineCore
from engine.messages import EngineCoreRequest
from engine.model_source import resolve
from engine.sampling_params import SamplingParams
from tracer.schema import PassRecord, decode


def tiny(**flags: Any) -> EngineConfig:
    """The tiny model in float64, where no order of summation changes a token; blocks of 4, in check mode."""
    settings = {"model": "tiny", "dtype": "float64", "block_size": 4, "check": True, "num_gpu_blocks_override": 65}
    config = EngineConfig.make(**{**settings, **flags})
    config.model_config = resolve(config.model_config)
    return config


def ask(req_id: str, tokens: list[int], max_tokens: int = 4, **fields: Any) -> EngineCoreRequest:
    params = {name: fields.pop(name) for name in list(fields) if name in SamplingParams.__struct_fields__}
    sampling = SamplingParams.make(max_tokens=max_tokens, **{"temperature": 0.0, "ignore_eos": True, **params})
    return EngineCoreRequest(req_id, tokens, sampling, **{"arrival_time": 0.0, **fields})


class Engine:
    """A real engine core with its decoded passes and each request's tokens, by (id, submission)."""

    def __init__(self, **flags: Any) -> None:
        self.passes: list[PassRecord] = []
        self.core = EngineCore(tiny(**flags), self._take)
        self.runner = self.core.model_executor.driver_worker.model_runner  # type: ignore[attr-defined]
        self.tokens: dict[tuple[str, int], list[int]] = {}

    def add(self, *args: Any, **fields: Any) -> None:
        self.core.add_request(ask(*args, **fields))

    def run(self, passes: int = 200) -> None:
        """Run so many passes, or until there is nothing to do."""
        for _ in range(passes):
            outputs, _ = self.core.step()
            for output in (output for client in outputs.values() for output in client.outputs):
                self.tokens.setdefault((output.request_id, output.submission), []).extend(output.new_token_ids)

    def facts(self, phase: str, pass_id: int = -1) -> dict[str, Any]:
        return next(each.facts for each in self.passes[pass_id].phases if each.phase == phase)

    def _take(self, data: bytes) -> None:
        entry = decode(data)
        if isinstance(entry, PassRecord):
            self.passes.append(entry)


def solo(tokens: list[int], count: int, **params: Any) -> list[int]:
    """The tokens of the same request alone in a fresh engine."""
    engine = Engine(max_num_seqs=1, max_num_batched_tokens=64, enable_prefix_caching=False)
    engine.add("solo", tokens, count, **params)
    engine.run(count + 1)
    return engine.tokens["solo", 0]
