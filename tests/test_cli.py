"""The command line: a flag for every engine setting, and one line for whatever cannot work."""

import socket
import subprocess
import sys

import msgspec
import pytest

from batchscope.cli import COMMANDS, main, make_parser
from batchscope.commands.serve import HELP, NOT_FLAGS, engine_config
from engine.config import EngineConfig


def parse(*flags: str) -> EngineConfig:
    return engine_config(make_parser(["serve"]).parse_args(["serve", *flags]))


def settings() -> list[str]:
    parts = msgspec.structs.fields(EngineConfig)
    return [f.name for part in parts for f in msgspec.structs.fields(part.type) if f.name not in NOT_FLAGS]


def test_every_engine_setting_is_a_flag_with_a_word_of_help():
    parser = make_parser(["serve"])
    flags = parser._subparsers._group_actions[0].choices["serve"].format_help()
    for name in settings():
        assert f"--{name.replace('_', '-')}" in flags
        assert HELP.get(name), f"HELP in batchscope/commands/serve.py has no words for {name}"


def test_flags_that_are_not_given_leave_the_defaults():
    assert parse() == EngineConfig.make()


def test_flags_reach_their_parts_with_their_types():
    config = parse("--model", "tiny", "--max-num-seqs", "4", "--no-enable-prefix-caching", "--check",
                   "--logits-processors", "a.B", "--logits-processors", "c.D")  # fmt: skip
    assert config.model_config.logits_processors == ["a.B", "c.D"]
    assert config.model_config.model == "tiny"
    assert config.scheduler_config.max_num_seqs == 4
    assert config.cache_config.enable_prefix_caching is False
    assert config.trace_config.check is True


def test_every_command_has_help(capsys):
    for command in COMMANDS:
        with pytest.raises(SystemExit) as ended:
            main([command, "--help"])
        assert ended.value.code == 0
    assert {"serve", "fetch"} <= set(COMMANDS)


def test_serving_starts_without_importing_torch():
    """The engine's process needs torch and the server's does not: the page is there sooner, in less memory."""
    code = (
        "import sys; from batchscope.cli import make_parser; make_parser(['serve']); import webui.server;"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--max-num-seqs", "0"], "max_num_seqs must be at least 1"),
        (["--max-num-seqs", "64", "--max-num-batched-tokens", "32"], "raise the first or lower the second"),
        (["--host", "0.0.0.0"], "add --share"),
        (["--host", "no.such.host.invalid", "--share"], "check --host"),
    ],
)
def test_settings_that_cannot_work_are_one_line_and_exit_code_2(capsys, flags, told):
    assert main(["serve", "--model", "tiny", *flags]) == 2
    stderr = capsys.readouterr().err
    assert told in stderr
    assert stderr.count("\n") == 1


def test_a_port_in_use_is_named_before_anything_is_loaded(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "--model", "tiny", "--port", str(port)]) == 2
    stderr = capsys.readouterr().err
    assert f"port {port}" in stderr
    assert "--port" in stderr
    assert "Loading" not in stderr
