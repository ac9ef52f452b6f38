"""How right was the ETA of finished runs? Reads the `console.log` of each and compares the remaining time that it
announced with the time that really remained.

    python benchmarks/eta.py runs/demo runs/multi30k
"""

import argparse
import re
from datetime import datetime
from pathlib import Path

LINE = re.compile(r"^(\S+ \S+)  step ([\d,]+)/([\d,]+) .*ETA (?:about )?([\d:]+)")
SHARES = (0.25, 0.5, 0.75)


def read_announcements(log: Path) -> tuple[list[tuple[datetime, float, float]], datetime]:
    """Returns time, share of the steps and announced seconds of every line with an ETA, and the time of the last line."""
    announced, last = [], datetime.min
    for line in log.read_text(encoding="utf-8").splitlines():
        moment = datetime.strptime(line[:19], "%Y-%m-%d %H:%M:%S")
        last = max(last, moment)
        if match := LINE.match(line):
            step, steps = (int(match[group].replace(",", "")) for group in (2, 3))
            announced.append((moment, step / steps, parse_duration(match[4])))
    return announced, last


def parse_duration(text: str) -> float:
    """`9:03` or `1:02:05` in seconds."""
    seconds = 0.0
    for part in text.split(":"):
        seconds = 60 * seconds + float(part)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of finished runs")
    runs: list[Path] = parser.parse_args().runs
    print("| run | at | announced | really | error |")
    print("|---|---|---|---|---|")
    for folder in runs:
        announced, end = read_announcements(folder / "console.log")
        for share in SHARES if announced else ():
            moment, at, eta = min(announced, key=lambda one: abs(one[1] - share))
            real = (end - moment).total_seconds()
            error = f"{eta / real - 1:+.0%}" if real else "-"
            print(f"| {folder} | {at:.0%} of the steps | {eta:,.0f} s | {real:,.0f} s | {error} |")


if __name__ == "__main__":
    main()
