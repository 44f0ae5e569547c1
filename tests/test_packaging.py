"""What an installation brings: pinned versions, the page, the command, and a package that others call theirs."""

import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from helpers.house import ROOMS, ROOT, copy_house, imported_packages, run
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def pins() -> dict[str, Requirement]:
    lines = (line.split("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines())
    return {canonicalize_name(pin.name): pin for pin in map(Requirement, filter(None, lines))}


def declared() -> list[Requirement]:
    extras = PROJECT["optional-dependencies"]
    lines = PROJECT["dependencies"] + [line for extra in ("bench", "notebooks", "dev") for line in extras[extra]]
    return [Requirement(line) for line in lines]


def test_whatever_pip_installs_is_pinned() -> None:
    todo, seen = [r for r in declared() if r.name != "batchscope"], {("pip", frozenset[str]())}  # pip is there already
    while todo:
        requirement = todo.pop()
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if key in seen or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        seen.add(key)
        assert key[0] in pins(), f"{key[0]} is installed but constraints.txt does not pin it"
        todo += needed_by(requirement)


def needed_by(requirement: Requirement) -> Iterator[Requirement]:
    try:
        lines = requires(requirement.name) or []
    except PackageNotFoundError:
        return
    for line in map(Requirement, lines):
        extras = requirement.extras | {""}
        if line.marker is None or any(line.marker.evaluate({"extra": extra}) for extra in extras):
            line.marker = None
            yield line


def test_whatever_we_import_is_declared() -> None:
    lines = PROJECT["dependencies"] + PROJECT["optional-dependencies"]["bench"]
    declared_names = {canonicalize_name(Requirement(line).name) for line in lines}
    distributions = packages_distributions()
    # triton is optional, and other engines run in environments of their own, with scripts that import their neighbours.
    peers = {"vllm", "transformers", "llama_cpp"}
    needs_nothing = {*ROOMS, "triton", *peers} | sys.stdlib_module_names
    for path in (path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        neighbours = {other.stem for other in path.parent.glob("*.py")}
        for package in set(imported_packages(path)) - needs_nothing - neighbours:
            names = {canonicalize_name(name) for name in distributions.get(package, [package])}
            assert names & declared_names, f"{path} imports {package}: declare it in pyproject.toml"


def test_the_pins_satisfy_the_declared_ranges() -> None:
    for requirement in declared():
        if requirement.name != "batchscope":
            (pin,) = pins()[canonicalize_name(requirement.name)].specifier
            assert pin.operator == "=="
            assert requirement.specifier.contains(pin.version), f"{requirement} against {pin}"


LOAD_WITH_TRANSFORMERS = """
import kernels, runner.forward_context, torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils.import_utils import is_kernels_available

assert not is_kernels_available(), "transformers takes ours for theirs: choose another version number"
sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2)
model = LlamaForCausalLM(LlamaConfig(**sizes, num_key_value_heads=1))
model.save_pretrained("saved")
loaded = LlamaForCausalLM.from_pretrained("saved")
ids = torch.tensor([[1, 2, 3]])
assert torch.equal(model(ids).logits, loaded(ids).logits)
print("kernels from", kernels.__file__)
"""


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that Batchscope is installed into from a wheel, without its dependencies."""
    source, target = copy_house(tmp_path_factory.mktemp("source")), tmp_path_factory.mktemp("installed")
    pip = (sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target", target)
    result = run(*pip, source)
    assert result.returncode == 0, result.stdout
    return target


def test_transformers_loads_a_model_beside_our_kernels_in_the_repository(tmp_path: Path) -> None:
    result = run(sys.executable, "-c", LOAD_WITH_TRANSFORMERS, cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert result.returncode == 0, result.stdout
    assert f"kernels from {ROOT}" in result.stdout


def test_transformers_loads_a_model_beside_our_kernels_when_installed(installed: Path, tmp_path: Path) -> None:
    result = run(sys.executable, "-c", LOAD_WITH_TRANSFORMERS, cwd=tmp_path, PYTHONPATH=str(installed))
    assert result.returncode == 0, result.stdout
    assert f"kernels from {installed}" in result.stdout


def test_hugging_faces_kernels_in_the_environment_is_refused_with_advice(tmp_path: Path) -> None:
    metadata = tmp_path / "kernels-0.17.2.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: kernels\nVersion: 0.17.2\n")
    result = run(sys.executable, "-c", "import batchscope", PYTHONPATH=str(tmp_path))
    assert result.returncode == 1
    assert "ImportError: Hugging Face's `kernels` 0.17.2 is installed here" in result.stdout
    assert "fresh environment" in result.stdout


def test_an_installed_batchscope_brings_its_page_and_its_command(installed: Path, tmp_path: Path) -> None:
    kept = {path.relative_to(ROOT) for path in (ROOT / "webui" / "static").rglob("*") if path.is_file()}
    assert kept
    assert all((installed / path).is_file() for path in kept)
    result = run(installed / "bin" / "batchscope", "--help", cwd=tmp_path, PYTHONPATH=str(installed))
    assert result.returncode == 0, result.stdout
    assert "serve" in result.stdout
