"""`lockstep classify`."""

from pathlib import Path
from typing import Annotated, Literal, TypedDict

import typer

BATCH_SIZE = 256
"""Images classified at once."""

Guess = TypedDict("Guess", {"class": str, "probability": float})


class ClassifiedImage(TypedDict):
    """An image file with its most probable classes, the best first."""

    picture: str
    classes: list[Guess]


def classify(
    run: Annotated[str, typer.Argument(help="A run folder or address, a checkpoint folder or a model folder.")],
    pictures: Annotated[list[Path], typer.Argument(metavar="images", help="Image files (PNG, JPEG, ...) of any size.")],
    checkpoint: Annotated[
        Literal["best", "last"], typer.Option(help="Which checkpoint of the run: with the best score, or the newest.")
    ] = "best",
    top: Annotated[int, typer.Option(min=1, help="Most probable classes to show for each image.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print the images and their classes as JSON.")] = False,
) -> None:
    """Classify image files with a trained model.

    Images are scaled to the size on which the model was trained.

    `lockstep classify runs/cifar photo.jpg --top 3`
    """
    import numpy as np
    import torch

    from lockstep.cli.common import find_model_folder, print_json
    from lockstep.data.images.image_set import read_image
    from lockstep.remote.fetch_run import fetch_model
    from lockstep.tasks.classification import load, make_image_batch
    from lockstep.team import pick_device

    device = pick_device("auto", 0)
    module, facts = load(find_model_folder(fetch_model(run, checkpoint), checkpoint), device)
    results: list[ClassifiedImage] = []
    for begin in range(0, len(pictures), BATCH_SIZE):
        part = pictures[begin : begin + BATCH_SIZE]
        images = np.stack([read_image(path, facts["shape"]) for path in part])
        with torch.inference_mode():
            scores = module.compute_logits(make_image_batch(images, np.zeros(len(part))).to(device).images)
        best = scores.softmax(-1).topk(min(top, len(facts["classes"])))
        for path, shares, numbers in zip(part, best.values.tolist(), best.indices.tolist(), strict=True):
            guesses: list[Guess] = [
                {"class": facts["classes"][number], "probability": share}
                for number, share in zip(numbers, shares, strict=True)
            ]
            results.append({"picture": str(path), "classes": guesses})
    if as_json:
        print_json(results)
        return
    width = max(len(one["picture"]) for one in results)
    for one in results:
        shown = ", ".join(f"{guess['class']} {guess['probability']:.1%}" for guess in one["classes"])
        print(f"{one['picture']:{width}}  {shown}")
