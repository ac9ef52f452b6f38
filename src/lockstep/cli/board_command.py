"""`lockstep board`."""

from pathlib import Path
from typing import Annotated

import typer


def board(
    runs: Annotated[list[str], typer.Argument(help="Run folders or addresses, or folders that contain runs.")],
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="TCP port; 0 takes any free one. Default: 6006, or the next free one."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 admits other machines.")] = "localhost",
    open_browser: Annotated[bool, typer.Option("--open", help="Open TensorBoard in the browser.")] = False,
) -> None:
    """Show runs in TensorBoard: curves of loss, score, speed, phases of a step and use of the machine."""
    import signal
    import sys
    import tempfile
    import webbrowser

    from lockstep.cli.common import print_text
    from lockstep.cli.find_runs import name_runs

    folders = {name: _find_events(run) for name, run in name_runs(runs).items()}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="lockstep-board-") as together:
        for name, folder in folders.items():
            link = Path(together, name)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(folder.absolute(), target_is_directory=True)
        address = _serve(together, host, port)
        shown = f"{len(folders)} runs" if len(folders) > 1 else f"the run {next(iter(folders))}"
        try:
            print_text(f"TensorBoard shows {shown} at {address} until you press Ctrl-C.", flush=True)
            if open_browser:
                webbrowser.open(address)
            signal.pause()
        except KeyboardInterrupt:
            return


def _find_events(run: str) -> Path:
    """The folder of a run's TensorBoard files. Those of a remote run are copied, in their present state."""
    from lockstep.remote.fetch_run import fetch_run
    from lockstep.remote.place import is_remote

    return (fetch_run(run, with_scalars=True) if is_remote(run) else Path(run)) / "tensorboard"


def _serve(folder: str, host: str, port: int | None) -> str:
    """Starts the server of TensorBoard in this process and returns its address."""
    import contextlib
    import io

    from tensorboard import program

    from lockstep.errors import LockstepError

    server = program.TensorBoard()
    server.configure(argv=["lockstep board", "--logdir", folder], host=host, port=port)
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # hides how TensorBoard loads its data
            return str(server.launch())
    except program.TensorBoardServerException as error:
        reason = str(error.msg).strip().splitlines()[0].rstrip(".")
        raise LockstepError(
            f"TensorBoard cannot start: {reason}.", "Choose another --port or --host, or leave them out.", code=2
        ) from None
