"""The verdict at the top of a report: what happened, what was learned, and what a step is bound by."""

from lockstep.explain.ablation_proof import ProofSection
from lockstep.explain.evidence import Evidence
from lockstep.explain.formatting import count, number, plural, score_title, seconds
from lockstep.explain.measures.absences import describe_absences
from lockstep.explain.measures.bottleneck import Bottleneck
from lockstep.explain.measures.convergence import LEARNING, TRAINED, Convergence
from lockstep.explain.measures.loss_gap import NOT_OVERFITTING, OVERFITTING, WIDENING, LossGap
from lockstep.explain.summary import Summary


def write_verdict(evidence: Evidence, summary: Summary, proof: ProofSection | None) -> list[str]:
    """Returns three sentences, and before them what disturbed the run."""
    return [
        *filter(None, [summary.disturbance]),
        f"{_describe_run(summary, evidence.wall_time.total)} {describe_absences(evidence.absences)}".rstrip(),
        _describe_learning(summary, evidence.convergence, evidence.loss_gap),
        _describe_bottleneck(evidence.bottleneck, proof),
    ]


def _describe_run(summary: Summary, wall_seconds: float) -> str:
    setting = ", ".join(part for part in (summary.way, summary.precision) if part)
    workers = f" with {plural(summary.workers, 'worker')} ({setting})" if summary.workers else ""
    if not summary.step:
        return f"The run is {summary.state} and has not taken a step{workers}."
    state = {"running": "is running and has taken", "finished": "finished", "stopped": "was stopped after"}.get(
        summary.state, "was cut off after"
    )
    speed = f", {count(summary.words_per_second)} {summary.unit} per second" if summary.words_per_second else ""
    return f"The run {state} {plural(summary.step, 'step')} in {seconds(wall_seconds)}{workers}{speed}."


def _describe_learning(summary: Summary, convergence: Convergence, gap: LossGap) -> str:
    if summary.best_score is None:
        return "How well the model learned is not known: nothing was evaluated."
    score, doubt = _describe_score(summary, summary.best_score), _describe_doubt(convergence)
    if gap.verdict == OVERFITTING and gap.best is not None:
        turn = count(gap.steps[gap.best])
        since = f"its validation loss was lowest at step {turn} and has risen since"
        return f"The model is overfitting: {since}; {score}.{doubt}"
    training = {TRAINED: "The model is trained", LEARNING: "The model is still learning"}.get(
        convergence.verdict, "It is too early to say whether the model is fully trained"
    )
    overfitting = {
        WIDENING: "the gap between training and validation loss widens",
        NOT_OVERFITTING: "there is no overfitting",
    }.get(gap.verdict, "overfitting cannot be judged yet")
    return f"{training}, and {overfitting}; {score}.{doubt}"


def _describe_doubt(convergence: Convergence) -> str:
    if not convergence.has_few_examples or not convergence.examples:
        return ""
    return f" This is not sure: it is judged by only {plural(convergence.examples, convergence.noun)}."


def _describe_score(summary: Summary, best_score: float) -> str:
    title = score_title(summary.metric)
    best = f"the best {title} was {number(best_score)} at step {count(summary.best_step or 0)}"
    if not summary.on_test or summary.last_score is None:
        return best
    last = f"{title} on the test set was {number(summary.last_score)} at the last evaluation"
    return f"{last} ({best}, selected on that same set)" if summary.last_score != best_score else last


def _describe_bottleneck(bottleneck: Bottleneck | None, proof: ProofSection | None) -> str:
    """Returns the sentence of the journals. A proof follows when its trials had a network if and only if the run had one,
    and so does what contradicts the journals."""
    text = bottleneck.sentence() if bottleneck else "What a step is made of was not measured."
    several_hosts = bottleneck is not None and bottleneck.hosts > 1
    if proof is None or proof.used_network != several_hosts:
        return text
    if proof.contradictions and not proof.is_proven:
        disagreements = " ".join(one.sentence for one in proof.contradictions)
        return f"{text} The trials of `lockstep prove` contradict this: {disagreements}"
    return f"{text} {proof.sentence}" if proof.is_proven else text
