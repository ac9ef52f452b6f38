"""The base of every settings class. Each package keeps its own settings beside the code that reads them."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict


class Settings(BaseModel):
    """A typed group of settings: unknown keys are errors, the text under a field is its explanation."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, validate_default=True, allow_inf_nan=False
    )


class Fixed:
    """Marks a setting (as `Annotated` metadata) that a resumed run must keep, because its state depends on it."""


FIXED = Fixed()


def _path_or_address(value: str | Path) -> str | Path:
    return Path(value) if isinstance(value, str) and "://" not in value else value


Place = Annotated[str | Path, AfterValidator(_path_or_address)]
"""A path, or an address such as s3://bucket/folder, which stays text: a path would lose one of its slashes."""
