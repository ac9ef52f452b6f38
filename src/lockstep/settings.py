"""The base of every settings class. Each package keeps its own settings beside the code that reads them."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """A typed group of settings: unknown keys are errors, the text under a field is its explanation."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, validate_default=True, allow_inf_nan=False
    )


class Fixed:
    """Marks a setting (as `Annotated` metadata) that a resumed run must keep, because its state depends on it."""


FIXED = Fixed()
