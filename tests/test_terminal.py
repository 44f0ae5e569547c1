"""`batchscope generate` and `batchscope chat`: text in the terminal as it comes."""

import io
import subprocess
import sys

import pytest

from batchscope import LLM, SamplingParams
from batchscope.cli import main

TINY = ["--model", "tiny", "--num-gpu-blocks-override", "200"]


@pytest.fixture(scope="module")
def llm():
    made = LLM("tiny", num_gpu_blocks_override=200, trace=False)
    yield made
    made.shutdown()


def test_generate_prints_what_the_library_gives(llm, capsys):
    [wanted] = llm.generate("Hello", SamplingParams(temperature=0, max_tokens=12), use_tqdm=False)
    assert main(["generate", "Hello", "--max-tokens", "12", *TINY]) == 0
    assert capsys.readouterr().out == wanted.text + "\n"


def test_generate_reads_standard_input_and_sends_a_chat_message(llm, capsys, monkeypatch):
    form = llm.tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}])
    ids = llm.tokenizer.encode(form, add_special_tokens=False)
    [wanted] = llm.generate([ids], SamplingParams(temperature=0, max_tokens=9), use_tqdm=False)
    monkeypatch.setattr("sys.stdin", io.StringIO("Hi"))
    assert main(["generate", "--chat", "--max-tokens", "9", *TINY]) == 0
    assert capsys.readouterr().out == wanted.text + "\n"


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["Hi", "--top-p", "3"], "top_p must be above 0"),
        (["Hi", "--max-tokens", "0"], "max_tokens must be at least 1"),
        (["x" * 2000], "max_model_len is 1024"),
        (["Hi", "--max-num-seqs", "0"], "max_num_seqs must be at least 1"),
    ],
)
def test_what_cannot_work_is_one_line_and_exit_code_2(capsys, flags, told):
    assert main(["generate", *flags, *TINY]) == 2
    assert told in capsys.readouterr().err.splitlines()[-1]


def test_a_conversation_goes_on_from_what_was_said_until_it_is_cleared(llm, capsys, monkeypatch):
    params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=False)

    def reply(messages):
        ids = llm.tokenizer.encode(llm.tokenizer.apply_chat_template(messages), add_special_tokens=False)
        return llm.generate([ids], params, use_tqdm=False)[0].text

    first = reply([{"role": "user", "content": "One"}])
    second = reply(
        [
            {"role": "user", "content": "One"},
            {"role": "assistant", "content": first},
            {"role": "user", "content": "Two"},
        ]
    )
    lines = ["One", "", "Two", "x" * 2000, "/clear", "One", "/quit", "never"]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines)))
    assert main(["chat", "--temperature", "0", "--max-tokens", "6", *TINY]) == 0
    told = capsys.readouterr()
    assert told.out == f"{first}\n{second}\n{first}\n"
    assert "max_model_len is 1024" in told.err


def test_text_is_printed_before_the_answer_is_complete():
    code = "import sys; from batchscope.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "generate", "Go", "--max-tokens", "1000", *TINY]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as running:
        assert running.stdout.read(1)
        assert running.poll() is None
        running.kill()
