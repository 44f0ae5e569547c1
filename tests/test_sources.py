"""The source lines of each phase are those of the files that run, also where the worker comes from elsewhere."""

import re
from pathlib import Path

import pytest
from helpers.recorded import run
from helpers.tiny_engine import Engine, tiny

from engine.core import EngineCore
from engine.sources import phase_sources
from runner.gpu_model_runner import GPUModelRunner
from runner.worker import Worker
from tracer.phases import Phase
from tracer.template import Scope

REPO = Path(__file__).parents[1]


class LoudRunner(GPUModelRunner):
    def _prepare_inputs(self, scheduler_output):
        logits_indices = super()._prepare_inputs(scheduler_output)
        return logits_indices


class LoudWorker(Worker):
    def load_model(self):
        super().load_model()
        self.model_runner = LoudRunner(self.config, self.model, self.device, self.trace)


@pytest.fixture(scope="module")
def engine():
    engine = Engine(max_num_seqs=4)
    for i in range(5):
        engine.add(f"r{i}", list(range(20 + i, 24 + 2 * i)), 3 + i)
    engine.run()
    return engine


@pytest.fixture(scope="module")
def sources(engine):
    return engine.core.utility("sources", [])


def pieces(sources):
    return [piece for source in sources.values() for piece in (source, *source["calls"])]


def test_every_phase_has_lines_and_they_are_those_of_the_file(sources):
    assert sources.keys() == {phase.value for phase in Phase}
    for piece in pieces(sources):
        lines = (REPO / piece["file"]).read_text().splitlines()
        assert piece["lines"] == lines[piece["first_line"] - 1 :][: len(piece["lines"])]
        assert f"def {piece['function'].split('.')[-1]}(" in "\n".join(piece["lines"])


def test_the_part_of_a_phase_ends_where_the_code_marks_it(sources):
    for phase in Phase:
        source = sources[phase]
        marked = [i for i, line in enumerate(source["lines"]) if f"Phase.{phase.name}" in line]
        if not marked:
            assert source["part"] is None
            continue
        first, last = (number - source["first_line"] for number in source["part"])
        assert first <= last < marked[0]
        assert "Phase." not in "\n".join(source["lines"][first : last + 1])
    forward = sources["forward"]
    first, last = (number - forward["first_line"] for number in forward["part"])
    assert "set_forward_context" in "\n".join(forward["lines"][first : last + 1])
    assert "_update_states" not in "\n".join(forward["lines"][first : last + 1])


def test_each_phase_names_its_counterpart_in_vllm(sources):
    for source in sources.values():
        assert re.fullmatch(r"\w+\.\w+ \(vllm/v1/[\w/]+\.py\)", source["vllm"])
    assert sources["prepare_inputs"]["vllm"] == "GPUModelRunner._prepare_inputs (vllm/v1/worker/gpu_model_runner.py)"


def test_the_names_stand_for_recorded_facts(sources, engine):
    for phase, source in sources.items():
        code = "\n".join(line for piece in (source, *source["calls"]) for line in piece["lines"])
        for name, path in source["names"].items():
            assert re.search(rf"\b{name.split('.')[0]}\b", code), (phase, name)
            assert any(Scope(record, phase).value(path) is not None for record in engine.passes), (phase, name, path)
    inputs = sources["prepare_inputs"]["names"]
    assert {"counts", "req_indices", "positions", "query_start_loc", "logits_indices"} <= inputs.keys()


def test_a_worker_from_elsewhere_shows_its_own_lines():
    engine = Engine(max_num_seqs=4, worker_cls=f"{__name__}.LoudWorker")
    source = phase_sources(engine.core, engine.core.model_executor)["prepare_inputs"]
    assert (source["function"], source["file"]) == ("LoudRunner._prepare_inputs", "test_sources.py")
    assert "    def _prepare_inputs(self, scheduler_output):" in source["lines"]
    assert source["part"] is None


def test_a_run_is_recorded_with_its_sources_and_explanations():
    config = run()[1].config
    assert config["sources"].keys() == config["explanations"].keys() == {phase.value for phase in Phase}


def test_without_a_trace_there_is_nothing_to_show():
    assert EngineCore(tiny(max_num_seqs=2)).sources() == {}
