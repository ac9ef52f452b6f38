"""What the benchmark of faults calls right: the worker and the cause, and no sentence that leaves one of them open."""

import pytest
from fault_cases.cases import CASES
from fault_cases.trial import ACCUSATION, NO_ACCUSATION, Result
from faults import BY_NAME, judge

KILLED = "Worker 1 (process 9) was killed by SIGKILL in forward of step 60"
STANDS = "Worker 1 (process 9) has stood still for 10 s, since 10:10:10, in"
SLOW = "Worker 1 has been 103 % slower than the others for 60 s, which costs 50 % of the time:"
SAME_PLACE = "Workers 0 and 1 have not moved for 10 s, all at the same place: a worker that skipped an exchange"


def judge_sentence(name: str, sentence: str) -> str:
    result: Result = {
        "named": [{"sentence": sentence, "seconds": 1.0}],
        "exit_code": 0,
        "step_seconds": 0.1,
        "cannot": "",
    }
    return judge(BY_NAME[name], result)


@pytest.mark.parametrize(
    ("name", "sentence", "verdict"),
    [
        ("SIGKILL", f"{KILLED}, which a person or a program sent (supported).", "right"),
        ("SIGKILL", f"Error: {KILLED}.", "right"),
        ("SIGKILL", "Worker 0 (process 8) was killed by SIGKILL.", "wrong"),
        ("SIGKILL", f"{KILLED}, by the kernel because memory ran out (established).", "wrong"),
        ("out of memory", f"{KILLED}, by the kernel because memory ran out (established).", "right"),
        ("out of memory", f"{KILLED}, by somebody, or by the kernel because memory ran out (unknown).", "missed"),
        ("out of memory", f"{KILLED} (out of memory?).", "wrong"),
        (
            "SIGSTOP",
            f"{STANDS} forward of step 60: it is stopped (SIGSTOP) (established). Worker 0 waits for it.",
            "right",
        ),
        ("SIGSTOP", f"{STANDS} forward of step 60: it sleeps or waits (supported).", "wrong"),
        ("GIL held", f"{STANDS} backward: it sleeps or waits for a timer and holds the interpreter (GIL).", "right"),
        ("last exchange of a step skipped", f"{SAME_PLACE} (cause unknown).", "missed"),
        ("disk hangs", "Worker 0 (process 8) has stood still for 11 s: it waits for a disk or a file system.", "right"),
        ("rendezvous host dead", "Host h1 (10.77.0.1, Worker 0) is lost: its monitor went silent.", "right"),
        ("rendezvous host dead", "Host h2 (10.77.0.2, Worker 1) is lost: its monitor went silent.", "wrong"),
        ("a fifth of a core", f"{SLOW} its cgroup throttles it (established).", "right"),
        ("a fifth of a core", f"{SLOW} cause unknown (unknown).", "missed"),
        ("twice as slow", f"{SLOW} other programs use its cores (supported).", "right"),
        ("nothing", f"{SLOW} cause unknown (unknown).", "false alarm"),
    ],
)
def test_a_sentence_is_right_if_worker_and_cause_are(name: str, sentence: str, verdict: str) -> None:
    assert judge_sentence(name, sentence) == verdict
    assert ACCUSATION.search(sentence)


def test_what_accuses_nobody_is_not_judged() -> None:
    for line in (
        "Worker 1 continues.",
        "Error: Worker 0 lost the connection to another worker (Connection closed).",
        "step 60",
    ):
        assert NO_ACCUSATION.search(line) or not ACCUSATION.search(line)


def test_faults_have_names_of_their_own() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
