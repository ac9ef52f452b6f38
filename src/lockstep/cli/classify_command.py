"""`lockstep classify`."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

AT_ONCE = 256
"""Pictures."""


def classify(
    run: Annotated[str, typer.Argument(help="A run folder, a checkpoint or a model folder; also an address.")],
    pictures: Annotated[list[Path], typer.Argument(help="Picture files (PNG, JPEG, ...) of any size.")],
    checkpoint: Annotated[
        Literal["best", "last"], typer.Option(help="Which checkpoint, when a run folder is given.")
    ] = "best",
    top: Annotated[int, typer.Option(min=1, help="How many classes to name for each.")] = 1,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a list of pictures with their classes as JSON.")
    ] = False,
) -> None:
    """Say what pictures show, by a model that was trained on images.

    `lockstep classify runs/cifar photo.jpg --top 3`

    Pictures are shrunk or stretched to the size of the images that the model was trained on.
    """
    import numpy as np
    import torch

    from lockstep.cli.common import find_model_folder, print_json
    from lockstep.data.images.image_set import read_image
    from lockstep.remote.fetch_run import fetch_model
    from lockstep.tasks.classification import load, make_image_batch
    from lockstep.team import pick_device

    device = pick_device("auto", 0)
    module, known = load(find_model_folder(fetch_model(run, checkpoint), checkpoint), device)
    found = list[dict[str, Any]]()
    for begin in range(0, len(pictures), AT_ONCE):
        part = pictures[begin : begin + AT_ONCE]
        images = np.stack([read_image(path, known["shape"]) for path in part])
        with torch.inference_mode():
            scores = module.compute_logits(make_image_batch(images, np.zeros(len(part))).to(device).images)
        best = scores.softmax(-1).topk(min(top, len(known["classes"])))
        for path, shares, numbers in zip(part, best.values.tolist(), best.indices.tolist(), strict=True):
            named = [
                {"class": known["classes"][number], "probability": share}
                for number, share in zip(numbers, shares, strict=True)
            ]
            found.append({"picture": str(path), "classes": named})
    if as_json:
        print_json(found)
        return
    width = max(len(one["picture"]) for one in found)
    for one in found:
        shown = ", ".join(f"{guess['class']} {guess['probability']:.1%}" for guess in one["classes"])
        print(f"{one['picture']:{width}}  {shown}")
