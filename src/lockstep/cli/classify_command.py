"""`lockstep classify`."""

from pathlib import Path
from typing import Annotated, Literal

import typer


def classify(
    run: Annotated[
        str, typer.Argument(help="A run folder or address, a checkpoint folder, a model folder or an ONNX export.")
    ],
    pictures: Annotated[list[Path], typer.Argument(metavar="images", help="Image files (PNG, JPEG, ...) of any size.")],
    checkpoint: Annotated[
        Literal["best", "last"], typer.Option(help="Which checkpoint of the run: with the best score, or the newest.")
    ] = "best",
    top: Annotated[int, typer.Option(min=1, help="Most probable classes to show for each image.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print the images and their classes as JSON.")] = False,
) -> None:
    """Classify image files with a trained model.

    Images are scaled to the size on which the model was trained. An export that `lockstep export --format onnx` made needs
    no torch.

    `lockstep classify runs/cifar photo.jpg --top 3`
    """
    from lockstep.api_images import load_classifier
    from lockstep.cli.common import print_json, print_text
    from lockstep.data.images.onnx_classifier import classify_files

    results = list(classify_files(load_classifier(run, checkpoint), pictures, top))
    if as_json:
        print_json(
            [
                {
                    "picture": str(path),
                    "classes": [{"class": guess.name, "probability": guess.probability} for guess in guesses],
                }
                for path, guesses in zip(pictures, results, strict=True)
            ]
        )
        return
    width = max(len(str(path)) for path in pictures)
    for path, guesses in zip(pictures, results, strict=True):
        print_text(f"{path!s:{width}}  {', '.join(f'{guess.name} {guess.probability:.1%}' for guess in guesses)}")
