"""The processes of one node of a pretended job. `pretend` starts this module on an emulated host, or beside the others."""

import json
import os
import sys
from pathlib import Path

from lockstep.launch.run_all import Program, run_all
from lockstep.notices import warn
from lockstep.run import environment_variables


def main() -> int:
    path = Path(sys.argv[1])
    facts = json.loads(path.read_text(encoding="utf-8"))
    path.unlink()  # there may be a secret in it
    basics = environment_variables.copy_basics()
    programs_here = str(Path(sys.executable).parent)  # in the place of those of the image
    basics["PATH"] = os.pathsep.join([programs_here, basics.get("PATH", os.defpath)])
    programs = [Program(one["words"], basics | one["variables"], inherits=False) for one in facts]
    if errors := run_all(programs):
        for line in errors.splitlines():
            warn(line)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
