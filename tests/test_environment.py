"""Waiting threads give the cores away, in this process and in those it starts."""

import os
import subprocess
import sys

from batchscope.environment import SPIN_COUNT

CODE = "import os, batchscope; print(os.environ.get('GOMP_SPINCOUNT'))"


def printed(**env):
    kept = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    return subprocess.run([sys.executable, "-c", CODE], env=kept | env, capture_output=True, text=True).stdout.strip()


def test_importing_batchscope_sets_the_spin_count_before_torch_can_be_loaded():
    assert printed() == SPIN_COUNT


def test_what_the_user_has_set_stays():
    assert printed(GOMP_SPINCOUNT="7") == "7"
    assert printed(OMP_WAIT_POLICY="active") == "None"
