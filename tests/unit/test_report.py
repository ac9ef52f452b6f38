"""What a report says, and how it is rendered."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lockstep.cli.report_command import write_report
from lockstep.errors import LockstepError
from lockstep.explain import report as report_module
from lockstep.explain.formatting import share
from lockstep.explain.report import Report, make, render_page, render_text, write
from madeup import PLAIN, MadeUp, Phases

LEARNING = {step: {"loss": 1.5 + 6.0 * step**-0.5, "sacrebleu": 30 - 60 * step**-0.5} for step in range(10, 101, 10)}


def make_report(folder: Path, workers: int = 2, **launch: Any) -> Report:
    MadeUp(folder).launch(range(1, 101), workers=workers, scores=LEARNING, **launch)
    return make(folder)


def figures(report: Report, number: int) -> dict[str, Any]:
    return {figure.name: figure for figure in report.answers[number - 1].figures}


def test_the_eleven_questions_are_answered_in_order_with_charts_and_measurements(tmp_path: Path) -> None:
    report = make_report(tmp_path)
    assert [answer["number"] for answer in report.facts()["answers"]] == list(range(1, 12))
    without = {8, 9}  # no checkpoint in this run
    for number, answer in enumerate(report.answers, 1):
        assert answer.short
        assert answer.text
        assert bool(answer.charts) == (number not in without)
        assert all(figure.measured for figure in answer.figures)
    assert len(report.verdict) == 3
    assert all(sentence.endswith(".") for sentence in report.verdict)


def test_every_module_of_the_answers_is_listed_once() -> None:
    modules = [path.stem for path in Path(report_module.__file__).with_name("answers").glob("[!_]*.py")]
    assert sorted(answer.__module__.rpartition(".")[2] for answer in report_module.ANSWERS) == sorted(modules)


@pytest.mark.parametrize(
    ("folder", "forbidden"),
    [
        ("reading", {"lockstep.explain.measures", "lockstep.explain.answers", "lockstep.explain.pages"}),
        ("measures", {"lockstep.explain.answers", "lockstep.explain.pages", "pathlib", "lockstep.files"}),
        ("answers", {"lockstep.explain.pages.html_page", "jinja2", "pathlib", "json", "yaml", "lockstep.files"}),
    ],
)
def test_reading_measuring_answering_and_drawing_are_separate(folder: str, forbidden: set[str]) -> None:
    """Only reading/ opens files, and only pages/ renders HTML."""
    for path in Path(report_module.__file__).with_name(folder).glob("*.py"):
        nodes = [
            node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        modules |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
        packages = {".".join(name.split(".")[:depth]) for name in modules for depth in range(1, 6)}
        assert packages & forbidden == set(), path.name


def test_every_chart_is_a_figure_that_plotly_accepts(tmp_path: Path) -> None:
    import plotly.graph_objects as go

    report = make_report(tmp_path)
    assert len(report.charts()) >= 11
    assert len({chart.name for chart in report.charts()}) == len(report.charts())
    for chart in report.charts():
        plain = re.sub(r'"--[a-z-]+(/[0-9.]+)?"', '"#112233"', json.dumps(chart.figure))
        go.Figure(json.loads(plain))
        assert chart.description
        assert chart.rows
        assert all(len(row) == len(chart.heads) for row in chart.rows)


def test_steps_that_differ_by_rounding_alone_are_drawn(tmp_path: Path) -> None:
    """Sums of the same phases in another order differ in the last bit: too little to divide into bars."""
    last_bit = [0.1, float(np.nextafter(0.1, 1.0))]
    report = make_report(
        tmp_path, phases=lambda rank, step: {**dict.fromkeys(PLAIN, 0.0), "forward": last_bit[step % 2]}
    )
    (chart,) = [chart for chart in report.charts() if chart.name == "step-times"]
    assert sum(int(row[1]) for row in chart.rows) == 95


def test_every_colour_is_in_the_style_sheet(tmp_path: Path) -> None:
    written = render_page(make_report(tmp_path))
    style = written.partition("</style>")[0]
    for name in set(re.findall(r'"(--[a-z-]+)[/"]', written.partition('id="figures"')[2].partition("</script>")[0])):
        assert f"{name}:" in style, name


def test_the_page_is_one_file_that_needs_no_network(tmp_path: Path) -> None:
    written = render_page(make_report(tmp_path))
    own = re.sub(r"<script>.*?</script>", "", written, count=1, flags=re.DOTALL)  # without plotly itself
    assert not re.search(r"""(?:src|href)=["'](?!#)""", own)
    assert "url(" not in own
    assert "@import" not in own
    assert "default-src 'none'" in own
    assert written.count("<script>") == 2


def test_names_from_outside_cannot_break_the_page(tmp_path: Path) -> None:
    run = MadeUp(tmp_path, hosts=["</script><b>"])
    run.data(files=[{"set": "<i>", "path": "a/<img>|x.en", "bytes": 1, "sha256": "0"}])
    run.launch(range(1, 21), precision="</script>")
    report = make(tmp_path, "<script>alert(1)</script>")
    written = render_page(report)
    assert "<script>alert" not in written
    assert "<img>" not in written
    assert "\\|x.en" in render_text(report)


def test_json_facts_contain_every_answer(tmp_path: Path) -> None:
    facts = json.loads(json.dumps(make_report(tmp_path).facts(), allow_nan=False))
    assert len(facts["answers"]) == 11
    assert facts["bottleneck"]["cause"] == "compute"
    assert facts["summary"]["step"] == 100
    assert facts["reference"] is None


def test_advice_is_ranked_by_predicted_gain(tmp_path: Path) -> None:
    def phases(rank: int, step: int) -> Phases:
        return {**PLAIN, "forward": 0.1} if rank == 1 else {**PLAIN, "merge": 0.065}

    report = make_report(tmp_path, phases=phases)
    gains = [one.gain for one in report.advice if one.gain is not None]
    assert gains == sorted(gains, reverse=True)
    (slow,) = [one for one in report.advice if "worker 1" in one.what]
    training = 100 * 0.16 / (100 * 0.16 + 15 + 3)
    assert slow.gain == pytest.approx(0.06 / 0.16 * training, rel=0.05)


def test_a_proof_is_shown_when_there_is_one(tmp_path: Path) -> None:
    proof = {
        "step_seconds": 0.1,
        "without_communication_seconds": 0.08,
        "free_input_seconds": 0.1,
        "alone_seconds": 0.09,
    }
    MadeUp(tmp_path)
    costs = {"network": 0.2, "input": 0.0, "imbalance": 0.0}
    proven = {
        "sentence": "step 100 ms: communication costs 20%",
        "bottleneck": "network",
        "costs": costs,
        "intervals": {"network": [0.14, 0.23], "input": [-0.02, 0.02], "imbalance": [-0.02, 0.02]},
        "link": None,
    }
    (tmp_path / "proof.json").write_text(json.dumps(proof | proven))
    report = make_report(tmp_path)
    assert report.verdict[2] == (
        "Compute-bound: 95.0 % of a step is computing; exchanging gradients between processes is next with 5.0 %. "
        "Proven by ablation: step 100 ms: communication costs 20%."
    )
    assert "Proof by ablation" in render_page(report)
    assert "| without communication | 80.00 ms | -20.0% |" in render_text(report)
    vain = proof | {"sentence": "steps were longer", "bottleneck": "not proven"}
    (tmp_path / "proof.json").write_text(json.dumps(vain))
    assert "proven" not in make(tmp_path).verdict[2]
    assert "Nothing is proven: steps were longer." in render_page(make(tmp_path))


def test_a_proof_on_one_machine_says_nothing_about_a_network(tmp_path: Path) -> None:
    run = MadeUp(tmp_path, hosts=["one", "two"])
    run.launch(range(1, 41), phases=lambda rank, step: {**PLAIN, "merge": 0.1})
    costs = {"network": [0.5, [0.45, 0.55]], "input": [0.0, [-0.02, 0.02]], "imbalance": [0.0, [-0.02, 0.02]]}
    proof: dict[str, Any] = {
        "step_seconds": 0.1,
        "sentence": "s",
        "bottleneck": "network",
        "costs": {cause: value for cause, (value, _) in costs.items()},
        "intervals": {cause: interval for cause, (_, interval) in costs.items()},
    }
    for link, expected in ((None, "to computing."), ("1gbit", "to computing. Proven by ablation: s.")):
        (tmp_path / "proof.json").write_text(json.dumps(proof | {"link": link}))
        verdict = make(tmp_path).verdict[2]
        assert verdict.startswith("The bottleneck is the network")
        assert verdict.endswith(expected)


def test_system_samples_are_reported(tmp_path: Path) -> None:
    run = MadeUp(tmp_path, hosts=["one", "two"])
    run.launch(range(1, 101))
    start = 1_700_000_000.0
    for place in range(12):
        run.now = start + 3 + place * 0.9
        gpu = {"index": 0, "name": "G", "utilisation": 1.0, "memory_used": 5e9, "memory_total": 1e10, "watts": 100}
        sent = {
            "eth0": {"sent": 1e6 * (place + 1), "received": 1e6, "link_bits": 1e9},
            "lo": {"sent": 0, "received": 0},
        }
        host = {"cores": [0.5, 1.0], "memory": {"used": 1e9, "total": 2e9}, "network": sent, "gpus": [gpu]}
        run.write(0, "system", host="one", seconds=0.9, process={"cpu": 1.5, "resident": 3e8}, **host)
    run.write(0, "link", interface="eth0", link_bits=1e9, probe_bits=9e8, latency_seconds=1e-4)
    for rank in (0, 1):
        run.write(rank, "model", attempt=1, parameters=1000, flops_per_word=1e6, peak_flops=1e10, seconds=0.1)
    report = make(tmp_path)
    used, network = figures(report, 4), figures(report, 5)
    assert used["processor cores used, worker 0"].value == pytest.approx(1.5)
    assert used["cores busy on one"].text == "75.0 %"
    assert used["G 0 on one: utilisation"].text == "100 %"
    assert used["busy, worker 0"].text == "95.0 %"  # whatever the driver says
    words = sum(1000 + step % 7 for step in range(6, 101)) / (95 * 0.1)
    assert used["achieved, all workers"].value == pytest.approx(words * 1e6)
    assert used["share of the peak (MFU)"].value == pytest.approx(words * 1e6 / 2e10, rel=1e-3)
    assert network["probe between the hosts"].value == 9e8
    rate = 8 * 1e6 / 0.015
    assert network["rate while travelling"].value == pytest.approx(rate)
    assert network["rate against the link speed"].value == pytest.approx(rate / 1e9)


def test_the_step_time_is_correlated_with_the_rate_of_the_interface(tmp_path: Path) -> None:
    run = MadeUp(tmp_path)
    run.launch(range(1, 101), phases=lambda rank, step: {**PLAIN, "forward": 0.04 + 0.001 * step})
    begin = 1_700_000_000.0 + 2.0
    for place in range(1, 14):
        run.now = begin + place
        sent = {"eth0": {"sent": 1e6 * place, "received": 0, "link_bits": None}}
        run.write(0, "system", host="one", seconds=1.0, network=sent)
    (r,) = [figure.value for name, figure in figures(make(tmp_path), 11).items() if "rate of eth0 on one" in name]
    assert r > 0.95


@pytest.mark.parametrize(("hosts", "sent"), [(["one"], 5e6), (["one", "two"], 42.0)])
def test_the_loopback_counts_only_when_all_workers_share_a_machine(
    tmp_path: Path, hosts: list[str], sent: float
) -> None:
    run = MadeUp(tmp_path, hosts=hosts)
    run.launch(range(1, 31))
    network = {"eth0": {"sent": 42.0, "received": 0}, "lo": {"sent": 5e6, "received": 5e6}}
    run.write(0, "system", host="one", seconds=1.0, network=network)
    assert figures(make(tmp_path), 5)["on the interface"].value == pytest.approx(8 * sent)


def test_figures_that_were_not_measured_are_marked(tmp_path: Path) -> None:
    report = make_report(tmp_path)
    assert figures(report, 4)["achieved FLOP/s"].text == "not measured"
    assert figures(report, 5)["link speed"].text == "not meaningful"


def test_the_correlation_distinguishes_a_slow_network_from_a_slow_machine(tmp_path: Path) -> None:
    def network(rank: int, step: int) -> Phases:
        return {**PLAIN, "merge": 0.005 + 0.01 * (step % 5)}

    def machine(rank: int, step: int) -> Phases:
        return {name: seconds * (1 + step % 5) for name, seconds in PLAIN.items()}

    run = MadeUp(tmp_path / "a", hosts=["one", "two"])
    run.launch(range(1, 101), phases=network)
    slow_network = make(run.folder).answers[10]
    one_machine = make_report(tmp_path / "c", phases=network).answers[10]
    slow_machine = make_report(tmp_path / "b", phases=machine).answers[10]
    assert "a faster network or sending less makes them shorter" in slow_network.text
    assert "network" not in one_machine.text
    assert "sending less makes them shorter" in one_machine.text
    assert "something else slows both" in slow_machine.text
    for answer in (slow_network, slow_machine):
        (r,) = [figure.value for figure in answer.figures if figure.name == "with the time gradients travel"]
        assert r == pytest.approx(1.0, abs=0.01)


def test_one_worker_has_no_network_to_correlate_with(tmp_path: Path) -> None:
    report = make_report(tmp_path, workers=1, phases=lambda rank, step: {**PLAIN, "forward": 0.04 + 0.001 * (step % 7)})
    assert report.answers[4].short == "no network used"
    assert "r = 1.00" in report.answers[10].text


def test_a_report_that_cannot_be_written_names_the_folder(tmp_path: Path) -> None:
    report = make_report(tmp_path / "run")
    (tmp_path / "file").write_text("")
    with pytest.raises(LockstepError, match="cannot be written"):
        write(report, tmp_path / "file")


def test_only_a_live_page_reloads_itself(tmp_path: Path) -> None:
    report = make_report(tmp_path)
    assert '<meta http-equiv="refresh" content="7">' in render_page(report, refresh=7)
    assert 'http-equiv="refresh"' not in render_page(report)


def test_a_report_imports_no_torch() -> None:
    import subprocess
    import sys

    program = "import sys, lockstep.explain.report\nprint('torch' in sys.modules, 'plotly' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "False False\n"


def test_every_predicted_gain_has_its_interval(tmp_path: Path) -> None:
    """A gain of 57.7 % stood alone, where 0.4 % to 78.4 % had been computed."""
    run = MadeUp(tmp_path)
    run.data(sets={"train": {"lines": 10_000, "target_words": 120_000}})
    scores = {step: {"loss": 6.0 * step**-0.3 + 0.15 * (step % 20 == 0)} for step in range(10, 61, 10)}
    run.launch(range(1, 61), scores=scores, phases=lambda rank, step: {**PLAIN, "merge": 0.04 + 0.002 * (step % 5)})
    report = make(run.folder)
    predicted = [one for one in report.advice if one.gain is not None]
    assert any(one.gain_of == "validation loss" for one in predicted)
    assert any(one.gain_of == "wall time" for one in predicted)
    text = render_text(report)
    for one in predicted:
        assert one.interval is not None
        assert one.gain is not None
        low, high = one.interval
        assert low <= one.gain <= high
        assert one.gain_text in text
        assert f"({share(low)} to {share(high)})" in one.gain_text


def test_the_name_of_a_run_gets_its_folder_suggested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "first").mkdir(parents=True)
    with pytest.raises(LockstepError, match=r"There is no run folder first. Did you mean runs/first\?"):
        write_report("first")


def test_files_that_are_not_listed_are_counted(tmp_path: Path) -> None:
    run = MadeUp(tmp_path)
    run.data(
        files=[{"set": "train", "path": f"text/{number}.en", "bytes": 1000, "sha256": "a"} for number in range(13)]
    )
    run.launch(range(1, 31))
    names = [figure.name for figure in make(tmp_path).answers[6].figures if "file" in figure.name]
    assert names[:11] == [f"file {number}.en" for number in range(11)]
    assert names[11:] == ["and 2 more files"]


def test_a_batch_of_a_large_part_of_the_text_is_never_proposed(tmp_path: Path) -> None:
    def propose(words: int) -> str:
        run = MadeUp(tmp_path / str(words))
        run.data(sets={"train": {"lines": 100, "target_words": words}})
        slow = {"input": 0.0, "forward": 0.01, "backward": 0.01, "merge": 0.08, "update": 0.0}
        run.launch(range(1, 61), workers=2, phases=lambda rank, step: slow)
        return " ".join(one.what for one in make(run.folder).advice)

    assert "batch.words=2000" in propose(20_000)
    assert "batch.words" not in propose(19_999)
