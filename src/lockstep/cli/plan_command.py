"""`lockstep plan`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from lockstep.lab.plan.predict import Plan, PlanRow
    from lockstep.lab.plan.score import MeasuredSetting


def plan(
    config: Annotated[
        list[str] | None,
        typer.Argument(
            help="A config file, then settings to change, as `batch.words=8000`; or a plan that --json printed."
        ),
    ] = None,
    cluster: Annotated[
        str, typer.Option(help="A preset such as office or v100-nodes, or a YAML file (docs/use/plan.md).")
    ] = "office",
    workers: Annotated[
        str | None,
        typer.Option(help="Worker counts, such as 1,2,4 or 1-16. Default: 1, 2, 4, ... up to the size of the cluster."),
    ] = None,
    strategies: Annotated[
        str | None,
        typer.Option(
            help="Strategies with their settings, separated by commas: allreduce,local:every=50,server:mode=async or "
            "allreduce:gradients=bf16:accumulate=4. Default: a usual selection."
        ),
    ] = None,
    links: Annotated[
        str | None,
        typer.Option(help="Links between the nodes, such as 1gbit,10gbit. Default: the link of the cluster."),
    ] = None,
    probe: Annotated[
        bool,
        typer.Option("--probe", help="Measure each link between two emulated hosts of its rate (needs root on Linux)."),
    ] = False,
    device: Annotated[
        str | None,
        typer.Option(help="Plan for this GPU (t4, p100, v100, a100 or h100) instead of measuring this machine."),
    ] = None,
    profile: Annotated[
        Path | None, typer.Option(help="Use a profile that --save-profile wrote, instead of measuring one.")
    ] = None,
    save_profile: Annotated[Path | None, typer.Option(help="Write the measured profile to this file.")] = None,
    contention: Annotated[
        str | None,
        typer.Option(
            help="Slow-down by workers that share a host, as 1,1.0,2,1.1,4,2.2 (workers, factor, ...); or a study folder."
        ),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Also predict hours and dollars for this many steps.")
    ] = None,
    score: Annotated[
        list[Path] | None, typer.Option(help="Compare the plan with this measured run or study; may be repeated.")
    ] = None,
    explain: Annotated[
        str | None, typer.Option(help="Explain field-report-1 or field-report-5 instead of a config.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Also write an HTML page with charts to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan (or the scores) as JSON.")] = False,
) -> None:
    """Predict speed and cost of a training on a cluster that you do not have.

    Trains the job for a few steps with one worker, to measure how long it computes and when each gradient is ready.
    Then it predicts step time, words per second, speed-up and exposed communication for each number of workers, strategy
    and link. Each prediction has an interval that should contain nine of ten measurements.

    With `batch.per=worker` the batch grows with the workers; otherwise they share it. With --device nothing is trained:
    the FLOPs of the model are counted, and typical rates of the device are assumed.

    With --score RUN, the predictions are compared with the measurements of a run or a study.

    Examples: `lockstep plan my.yaml --cluster v100-nodes --device v100 --steps 50000`;
    `lockstep plan my.yaml --links 1gbit,100mbit --probe --json > plan.json`, later `lockstep plan plan.json --score runs/x`
    """
    from lockstep.cli.plan_inputs import PlanOptions, make
    from lockstep.errors import LockstepError
    from lockstep.lab.plan.score import read_measurements
    from lockstep.safe_console import SafeConsole

    if explain is not None:
        _explain(explain, as_json)
        return
    if not config:
        raise LockstepError("No config file was given.", "For example: lockstep plan configs/demo.yaml", code=2)
    measurements = [one for place in score or [] for one in read_measurements(place)]
    options = PlanOptions(
        config, cluster, workers, strategies, links, probe, device, profile, save_profile, contention, steps
    )
    made = _read_plan(config[0]) or make(options, SafeConsole(stderr=True).print)
    if html is not None:
        _write_page(made, html)
    if score:
        _score(made.rows, measurements, as_json)
    else:
        _print_plan(made, html, as_json)


def _explain(name: str, as_json: bool) -> None:
    from lockstep.cli.common import print_json
    from lockstep.cli.plan_inputs import explain_field_report

    explanation = explain_field_report(name)
    if as_json:
        print_json(explanation.as_dict())
    else:
        print(explanation.text(), end="")


def _write_page(made: "Plan", html: Path) -> None:
    from lockstep.files import disk_error, write_atomically
    from lockstep.lab.plan.plan_page import render_plan

    try:
        write_atomically(html, render_plan(made))
    except OSError as error:
        raise disk_error(html, error, "name another file") from None


def _print_plan(made: "Plan", html: Path | None, as_json: bool) -> None:
    from lockstep.cli.common import print_json
    from lockstep.cli.plan_tables import list_tables
    from lockstep.safe_console import SafeConsole

    if as_json:
        print_json(made.as_dict())
        return
    console = SafeConsole()
    for table in list_tables(made):
        console.print(table)
    for sentence in (*made.recommendations, *made.notes):
        console.print(sentence, highlight=False, markup=False)
    if html is not None:
        console.print(f"Page with charts: {html}", highlight=False, markup=False)


def _read_plan(place: str) -> "Plan | None":
    """Reads a plan that `--json` printed. None if `place` is not a JSON file."""
    from lockstep.errors import LockstepError
    from lockstep.files import read_json
    from lockstep.lab.plan.predict import Plan, PlanRow

    path = Path(place)
    if path.suffix != ".json":
        return None
    facts = read_json(path)
    try:
        values = {key: facts[key] for key in Plan.__dataclass_fields__}
        return Plan(**values | {"rows": [PlanRow(**row) for row in facts["rows"]]})
    except (KeyError, TypeError):
        what = "does not exist" if facts is None else "is not a plan"
        raise LockstepError(f"{place} {what}.", "Make one with `lockstep plan CONFIG --json > FILE`.", 2) from None


def _score(rows: "list[PlanRow]", measurements: "list[MeasuredSetting]", as_json: bool) -> None:
    """Prints how far the predictions are from the measurements."""
    from lockstep.cli.common import print_json
    from lockstep.cli.plan_tables import score_table
    from lockstep.errors import LockstepError
    from lockstep.lab.plan.score import score, summarise_scores
    from lockstep.safe_console import SafeConsole

    scores, missed = score(rows, measurements)
    if not scores:
        raise LockstepError(
            "The plan has no prediction for any of the measured settings.",
            f"Plan with --workers {missed[0].workers} --strategies {missed[0].strategy_option}.",
            code=2,
        )
    if as_json:
        print_json({"scores": [one.as_dict() for one in scores], "summary": summarise_scores(scores)})
        return
    console = SafeConsole()
    console.print(score_table(scores))
    console.print(summarise_scores(scores), highlight=False, markup=False)
    for one in missed:
        line = f"Not in the plan: {one.workers} workers, {one.strategy}, link {one.link}."
        console.print(line, highlight=False, markup=False)
