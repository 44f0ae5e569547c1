"""The published OpenAPI document against the server: schemathesis makes requests of it, good ones and bad ones.

In CI, or under another Hypothesis profile than "dev", it also goes through its list of corner cases of every field.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.web import running_site

THOROUGH = "CI" in os.environ or os.environ.get("HYPOTHESIS_PROFILE", "dev") != "dev"
PHASES = "examples,coverage,fuzzing" if THOROUGH else "examples,fuzzing"


@pytest.fixture(scope="module")
def site():
    with running_site() as running:
        yield running


def test_every_answer_is_one_that_the_document_promises(site, tmp_path):
    # A paused engine would answer nothing. What a value means, such as an id that is no token, no schema says: such a
    # request fits the schema and is refused.
    command = [
        Path(sys.executable).parent / "schemathesis", "run", site.base + "/openapi.json", "--phases", PHASES,
        "--max-examples", "10", "--seed", "1", "--exclude-path", "/pause",
        "--exclude-checks", "positive_data_acceptance", "--request-timeout", "60", "--no-color",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stdout
    assert site.complete("still there", max_tokens=1).status_code == 200


def test_the_document_names_every_field_and_no_other(site):
    schemas = site.get("/openapi.json").json()["components"]["schemas"]
    for name in ("CompletionRequest", "ChatRequest"):
        assert {"n", "temperature", "logit_bias", "structured_outputs", "best_of"} <= schemas[name]["properties"].keys()
        assert schemas[name]["additionalProperties"] is False
