"""What a phase did in a recorded pass, in plain words: the sentences are data, tracer/explanations/<phase>.json."""

import json
from importlib.resources import files
from typing import Any

from tracer.phases import Phase
from tracer.schema import PassRecord
from tracer.template import Scope, paragraph

NOT_RUN = "It did not run in this pass."


def _load(phase: Phase) -> dict[str, Any]:
    return json.loads(files("tracer").joinpath("explanations", f"{phase}.json").read_text(encoding="utf-8"))


# For each phase: `who` runs it, what it `does`, what it did `here` (or why it was `absent`) and `why` it is there.
EXPLANATIONS: dict[str, dict[str, Any]] = {phase.value: _load(phase) for phase in Phase}


def explain_phase(record: PassRecord, phase: str) -> str:
    """Return three paragraphs: what the phase does, what it did in this pass with the pass's values, and why it exists.

    Raises ValueError for a phase that there isn't.
    """
    explanation = EXPLANATIONS[Phase(phase).value]
    return "\n\n".join([explanation["does"], here(record, phase), explanation["why"]])


def here(record: PassRecord, phase: str) -> str:
    """Return what the phase did in this pass, or that it did not run and why."""
    explanation, scope = EXPLANATIONS[phase], Scope(record, phase)
    if phase in scope.phases:
        return paragraph(explanation["here"], scope)
    return " ".join(filter(None, [NOT_RUN, paragraph(explanation.get("absent", []), scope)]))
