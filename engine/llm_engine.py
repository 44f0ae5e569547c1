"""The engine for offline use: requests in, steps, outputs, all in the caller's thread."""

from engine.config import EngineConfig
from engine.inproc_client import InprocClient
from engine.model_source import resolve
from engine.output_processor import OutputProcessor, RequestOutput
from engine.processor import Processor, Prompt
from engine.sampling_params import SamplingParams
from engine.tokenizer import Tokenizer
from tracer.log import Log


class LLMEngine:
    """An engine core in this process, with its log (None when the trace is off)."""

    def __init__(self, config: EngineConfig) -> None:
        """Fetch and load the model. Raises ConfigError where that or the settings cannot work."""
        config.model_config = resolve(config.model_config)
        config.validate()
        self.config = config
        self.tokenizer = Tokenizer.load(config.model_config)
        self.log = Log(config.scheduler_config.max_num_seqs) if config.trace_config.trace else None
        self.core_client = InprocClient(config, self.log.append if self.log else None)
        self.processor = Processor(config, self.tokenizer)
        self.output_processor = OutputProcessor(self.tokenizer)

    def add_request(self, request_id: str, prompt: Prompt, params: SamplingParams, priority: int = 0) -> None:
        """Let a request wait for `step`. Raises ValueError, with the reason, for one that can't be taken."""
        request = self.processor.process(request_id, prompt, params, priority)
        children = self.output_processor.add_request(request)
        try:
            for child in children:
                self.core_client.add_request(child)
        except ValueError:
            self.abort_request(request_id)
            raise

    def abort_request(self, request_id: str) -> list[RequestOutput]:
        """End a live request; return the last output of each answer that went on, none when it isn't live."""
        outputs, to_abort = self.output_processor.abort_request(request_id)
        if to_abort:
            self.core_client.abort_requests(to_abort)
        return outputs

    def has_unfinished_requests(self) -> bool:
        return len(self.output_processor) > 0

    @property
    def paused(self) -> bool:
        """Whether the gate is closed, so that `step` runs nothing until `core_client.call("resume")`."""
        return not self.core_client.core.gate.open

    def step(self) -> list[RequestOutput]:
        """Run one pass, if the gate is open and there is something to do, and return what came of it."""
        timeout = self.core_client.core.patience or 0.0  # nothing to do until a grammar is compiled
        outputs, to_abort = self.output_processor.process_outputs(self.core_client.get_outputs(timeout))
        if to_abort:
            self.core_client.abort_requests(to_abort)
        return outputs

    def shutdown(self) -> None:
        self.core_client.shutdown()
        if self.log:
            self.log.close()
