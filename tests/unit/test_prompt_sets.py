"""Sets of prompts: no row is lost without a name, and no prompt is trained on."""

import json
import random
import subprocess
import sys

import pyarrow
import pyarrow.parquet
import pytest
from fetching_doubles import REVISION, Hub, Recorder, use_hub
from unit.prompt_rows import LETTER, ROWS, SHELF, WEATHER, tool

from lib.contamination import Contamination, read_prompts
from lib.conversation import from_record
from lib.digest import SCRIPTS
from lib.evaluation import EvaluateSettings, read_questions
from lib.fetching import Location, fetch_source
from lib.jsonl import read_jsonl
from lib.manifest import manifest_files, write_manifest
from lib.prompt_formats import PROMPT_FORMATS
from lib.prompt_sets import PromptSettings, prepare_prompts
from lib.row_accounts import Accounts, UnusableSource

DOMAINS = {"gsm8k": "math", "humaneval": "code", "bfcl": "tools"}
BAD = [{}, None, 7, [], {"question": None}, {"prompt": "<|im_end|>"}]


def shelf(number):
    return {"question": f"A shelf holds {number} jars. How many are full?", "answer": "#### 1"}


class Prepared:
    """The prompts of a set of rows; the outputs as lists."""

    def __init__(self, folder, name, rows, raw=None, form=None, **settings):
        folder.mkdir(exist_ok=True, parents=True)
        raw = raw or folder / f"{name}.raw.jsonl"
        if not raw.exists():
            raw.write_text("".join(json.dumps(row) + "\n" for row in rows))
        self.path = folder / f"{name}.jsonl"
        accounts = Accounts(self.path, folder / f"{name}.rejects", folder / f"{name}.stats")
        domain = DOMAINS.get(form or name, "chat")
        self.counts = prepare_prompts(
            PromptSettings(name, form or name, domain, **settings), [raw], accounts, lambda _: None
        )
        assert self.counts == json.loads(accounts.stats.read_text())
        self.prompts = list(read_jsonl(self.path))
        self.rejects = list(read_jsonl(accounts.rejects))
        self.ids = [prompt["id"] for prompt in self.prompts]


@pytest.mark.parametrize("name", sorted(PROMPT_FORMATS))
def test_rows_in_are_prompts_and_what_was_left_out(tmp_path, name):
    rows = [ROWS[name], *BAD, ROWS[name]]
    prepared = Prepared(tmp_path, name, rows, max_reject_rate=1.0)
    counts = prepared.counts
    assert counts["rows_in"] == len(rows)
    assert counts["rows_in"] == counts["rows_written"] + counts["rows_rejected"]
    assert counts["rows_written"] == len(prepared.prompts) == 1
    assert [entry["row"] for entry in prepared.rejects] == list(range(1, len(rows)))
    assert counts["rejected_by_reason"]["repeated_prompt"] == 1
    assert sum(counts["rejected_by_reason"].values()) == len(prepared.rejects)


def test_prompts_have_the_form_of_the_projects_own(tmp_path):
    own = next(read_jsonl(SCRIPTS.parent / "resources/evaluation/tools.jsonl"))
    (prompt,) = Prepared(tmp_path, "bfcl", [ROWS["bfcl"]]).prompts
    assert list(prompt) == list(own)
    assert prompt["domain"] == "tools"
    assert prompt["conversations"] == [{"from": "human", "value": WEATHER}]
    assert json.loads(prompt["tools"])[0]["function"]["name"] == "weather.forecast"


def test_the_instruction_follows_the_question_which_also_stands_alone(tmp_path):
    (prompt,) = Prepared(tmp_path, "gsm8k", [ROWS["gsm8k"]]).prompts
    asked = prompt["conversations"][-1]["value"]
    assert asked == f"{SHELF}\n\n{PROMPT_FORMATS['gsm8k'].instruction}"
    assert prompt["question"] == SHELF


def test_the_target_is_asked_the_prompts_of_all_sets(render, tmp_path):
    paths = [Prepared(tmp_path, name, [ROWS[name]]).path for name in ("gsm8k", "bfcl")]
    renderer = render()
    settings = EvaluateSettings(thinking=False, preserve_thinking=False, backend="simulate")
    sums, tools = read_questions(paths, settings, renderer)
    assert (sums.domain, tools.domain) == ("math", "tools")
    instruction = PROMPT_FORMATS["gsm8k"].instruction
    assert f"{SHELF}\n\n{instruction}<|im_end|>" in renderer.decode(sums.prompt)
    assert "weather.forecast" in renderer.decode(tools.prompt)


def test_identities_differ_between_sets_and_not_with_order(tmp_path):
    rows = [shelf(n) for n in range(20)]
    first = Prepared(tmp_path / "a", "gsm8k", rows)
    random.Random(0).shuffle(rows)
    again = Prepared(tmp_path / "b", "gsm8k", rows)
    other = Prepared(tmp_path / "c", "sums", rows, form="gsm8k")
    assert len(set(first.ids)) == 20
    assert set(first.ids) == set(again.ids)
    assert not set(first.ids) & set(other.ids)
    assert all(name.startswith("gsm8k-") for name in first.ids)


def test_the_choice_is_the_same_each_time_and_grows_with_the_limit(tmp_path):
    rows = [shelf(n) for n in range(50)]
    few = Prepared(tmp_path / "a", "gsm8k", rows, max_prompts=10)
    assert few.counts["rejected_by_reason"] == {"over_quota": 40}
    random.Random(0).shuffle(rows)
    again = Prepared(tmp_path / "b", "gsm8k", rows, max_prompts=10)
    more = Prepared(tmp_path / "c", "gsm8k", [*rows, *rows], max_prompts=20)
    assert set(few.ids) == set(again.ids) < set(more.ids)
    assert len(more.ids) == 20
    assert more.counts["rejected_by_reason"] == {"over_quota": 30, "repeated_prompt": 50}


def test_too_many_bad_rows_and_a_set_without_a_prompt_are_errors(tmp_path):
    with pytest.raises(UnusableSource, match="gsm8k: 2 of 3 rows rejected"):
        Prepared(tmp_path / "a", "gsm8k", [shelf(1), {}, {}])
    for number, rows in enumerate(([], [{}, {}])):
        folder = tmp_path / str(number)
        with pytest.raises(UnusableSource, match=f"none of {len(rows)} rows gives a prompt"):
            Prepared(folder, "gsm8k", rows, max_reject_rate=1.0)
        assert not (folder / "gsm8k.jsonl").exists()


def test_the_command_keeps_the_rejects_of_a_set_that_cannot_be_used(tmp_path):
    raw = tmp_path / "raw/gsm8k/test.jsonl"
    raw.parent.mkdir(parents=True)
    raw.write_text(f'{json.dumps(shelf(1))}\n{{}}\n{{"question": 7}}\n')
    manifest = tmp_path / "raw/gsm8k.manifest.json"
    write_manifest(manifest, raw.parent, [raw.name])
    settings = {"name": "gsm8k", "format": "gsm8k", "domain": "math"}
    outputs = {name: tmp_path / f"{name}.jsonl" for name in ("prompts", "rejects", "stats")}
    command = [sys.executable, SCRIPTS / "prepare_prompts.py", "--manifest", manifest]
    command += ["--settings", json.dumps(settings), "--log", tmp_path / "gsm8k.log"]
    command += [part for name, path in outputs.items() for part in (f"--{name}", path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    kept = tmp_path / "gsm8k.rejects.jsonl"
    assert str(kept) in result.stderr
    assert [entry["row"] for entry in read_jsonl(kept)] == [1, 2]


def test_a_set_on_the_hub_is_brought_at_its_revision_and_converted(tmp_path, monkeypatch):
    rows = [ROWS["mt_bench"], {**ROWS["mt_bench"], "prompt": ["Name a river."]}]
    parquet = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), parquet)
    name = "data/train-00000-of-00001.parquet"
    with Hub("dataset", "some/prompts") as hub:
        hub.publish(name, parquet.read_bytes())
        use_hub(monkeypatch, hub, tmp_path / "cache")
        location = Location(hub={"dataset": "some/prompts", "revision": REVISION, "files": [name]})
        folder, manifest = tmp_path / "raw/mt", tmp_path / "raw/mt.manifest.json"
        fetch_source(location, folder, manifest, Recorder())
    (raw,) = manifest_files(manifest, folder)
    prepared = Prepared(tmp_path, "mt", [], raw=raw, form="mt_bench")
    asked = [from_record({"source": "", **prompt}).prompt() for prompt in prepared.prompts]
    assert asked == [LETTER, "Name a river."]
    assert prepared.counts["repaired"] == {"later_questions_left_out": 1}


def test_training_data_may_hold_the_instruction_but_no_question(tmp_path):
    short = "How many legs have 7 hens?"
    rows = [ROWS["gsm8k"], {**ROWS["gsm8k"], "question": short}]
    held_out = read_prompts([Prepared(tmp_path, "gsm8k", rows).path])
    instruction = PROMPT_FORMATS["gsm8k"].instruction
    texts = [
        f"Here is one: {SHELF} I think it is 4.",
        short,
        f"What is 8 times 9?\n\n{instruction}",
        f"{instruction} Then say why, in a sentence or two, as you would to a child of seven.",
    ]
    found = Contamination(held_out, 13, 30).find(texts)
    assert [run.text for run in found] == [0, 1]
    assert {run.prompt for run in found} == {prompt.id for prompt in held_out}


def test_code_is_found_by_its_tokens_and_tools_are_not_compared(tmp_path):
    held_out = read_prompts(
        [
            Prepared(tmp_path, "humaneval", [ROWS["humaneval"]]).path,
            Prepared(tmp_path, "bfcl", [ROWS["bfcl"]]).path,
        ]
    )
    texts = [f"```python\n{ROWS['humaneval']['prompt']}    pass\n```", json.dumps(tool("g"))]
    found = Contamination(held_out, 13, 30).find(texts)
    assert [run.text for run in found] == [0]
