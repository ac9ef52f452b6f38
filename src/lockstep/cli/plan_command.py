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
        typer.Argument(help="A config file, then any `key=value` settings; or a plan that --json has printed."),
    ] = None,
    cluster: Annotated[str, typer.Option(help="A preset such as office, v100-nodes, or a YAML file.")] = "office",
    workers: Annotated[
        str | None, typer.Option(help="Such as 1,2,4 or 1-16; when not given, 1, 2, 4, ... up to the whole cluster.")
    ] = None,
    strategies: Annotated[
        str | None,
        typer.Option(help="Such as allreduce,allreduce:gradients=bf16:accumulate=4,server:mode=async,local:every=50."),
    ] = None,
    links: Annotated[
        str | None, typer.Option(help="Between the nodes, instead of the cluster's: such as 1gbit,10gbit.")
    ] = None,
    probe: Annotated[
        bool, typer.Option("--probe", help="Measure each link between two emulated hosts of that rate (Linux, root).")
    ] = False,
    device: Annotated[
        str | None, typer.Option(help="Plan for t4, p100, v100, a100 or h100 instead of what is measured here.")
    ] = None,
    profile: Annotated[
        Path | None, typer.Option(help="Use this profile instead of measuring one; made by --save-profile.")
    ] = None,
    save_profile: Annotated[Path | None, typer.Option(help="Keep the profile in this file.")] = None,
    contention: Annotated[
        str | None,
        typer.Option(help="How many times slower workers are together, as 1,1.0,2,1.1,4,2.2; or a study that says it."),
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Also tell hours and dollars to so many steps.")] = None,
    score: Annotated[
        list[Path] | None, typer.Option(help="Compare with what this run or study has measured; may be repeated.")
    ] = None,
    explain: Annotated[
        str | None, typer.Option(help="Explain field-report-1 or field-report-5 instead; needs no config.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with charts to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan (or the scores) as JSON.")] = False,
) -> None:
    """Predict what a cluster would give, before you pay for it.

    Trains the job for a few steps with one worker to see what it computes and when each gradient is ready, takes the link
    by its name or measures it, and predicts step time, words per second, speed-up and what is waited for, for numbers of
    workers, strategies and links. Every prediction has an interval that should hold nine of ten measurements.

    A batch counts as the config says: `batch.per=worker` grows it with the workers, else they share it. With --device
    nothing is run: the arithmetic of the model is counted, and typical rates of the device are assumed.

    With --score RUN the prediction is laid beside what the run (or a study) has measured, and the error is told.

    Examples: `lockstep plan my.yaml --cluster v100-nodes --device v100 --steps 50000`;
    `lockstep plan my.yaml --links 1gbit,100mbit --probe --json > plan.json`, later `lockstep plan plan.json --score runs/x`
    """
    from rich.console import Console

    from lockstep.cli.common import print_json
    from lockstep.cli.plan_inputs import Asked, make
    from lockstep.cli.plan_tables import tables
    from lockstep.errors import LockstepError
    from lockstep.files import disk_error, write_atomically
    from lockstep.lab.plan.score import measured

    if explain is not None:
        from lockstep.cli.plan_inputs import explained

        print_json(explained(explain).as_dict()) if as_json else print(explained(explain).text(), end="")
        return
    if not config:
        raise LockstepError("No config file was named.", "For example: lockstep plan configs/demo.yaml", code=2)
    say = Console(stderr=True)
    found = [one for place in score or [] for one in measured(place)]
    asked = Asked(config, cluster, workers, strategies, links, probe, device, profile, save_profile, contention, steps)
    made = _saved(config[0]) or make(asked, say.print)
    if html is not None:
        from lockstep.lab.plan.plan_page import page

        try:
            write_atomically(html, page(made))
        except OSError as error:
            raise disk_error(html, error, "name another file") from None
    if score:
        _score(made.rows, found, as_json)
        return
    if as_json:
        print_json(made.as_dict())
        return
    console = Console()
    for table in tables(made):
        console.print(table)
    for sentence in (*made.recommendations, *made.notes):
        console.print(sentence, highlight=False)
    if html is not None:
        console.print(f"Charts: {html}", highlight=False)


def _saved(place: str) -> "Plan | None":
    """A plan that was made before, when `place` is one."""
    from lockstep.errors import LockstepError
    from lockstep.files import read_json
    from lockstep.lab.plan.predict import Plan, PlanRow

    path = Path(place)
    if path.suffix != ".json":
        return None
    facts = read_json(path)
    try:
        kept = {key: facts[key] for key in Plan.__dataclass_fields__}
        return Plan(**kept | {"rows": [PlanRow(**row) for row in facts["rows"]]})
    except (KeyError, TypeError):
        what = "does not exist" if facts is None else "is not a plan"
        raise LockstepError(f"{place} {what}.", "Make one with `lockstep plan CONFIG --json`.", code=2) from None


def _score(rows: "list[PlanRow]", found: "list[MeasuredSetting]", as_json: bool) -> None:
    from rich.console import Console

    from lockstep.cli.common import print_json
    from lockstep.cli.plan_tables import score_table
    from lockstep.errors import LockstepError
    from lockstep.lab.plan.score import score, summary

    scores, missed = score(rows, found)
    if not scores:
        raise LockstepError(
            "The plan has no prediction for what was measured.",
            f"Plan it with --workers {missed[0].workers} --strategies {missed[0].word}.",
            code=2,
        )
    if as_json:
        print_json({"scores": [one.as_dict() for one in scores], "summary": summary(scores)})
        return
    console = Console()
    console.print(score_table(scores))
    console.print(summary(scores), highlight=False)
    for one in missed:
        console.print(f"Not in the plan: {one.workers} workers, {one.strategy}, link {one.link}.", highlight=False)
