"""Which GPUs the driver of this machine knows, whether or not torch can use them. No torch is imported here."""

import re
from pathlib import Path

DRIVER_FILES = Path("/proc/driver/nvidia")


def list_gpus() -> tuple[list[str], str]:
    """Returns the names of the GPUs and the version of the driver."""
    return _ask_driver() or _read_driver_files()


def _ask_driver() -> tuple[list[str], str] | None:
    """Returns the names of the GPUs and the version of the driver from NVML; None where it does not answer."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return [str(pynvml.nvmlDeviceGetName(handle)) for handle in handles], str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return None


def _read_driver_files() -> tuple[list[str], str]:
    """Returns the same from the driver's files, where NVML is missing or of another version than the driver."""
    names = list[str]()
    for path in sorted(DRIVER_FILES.glob("gpus/*/information")):
        match = re.search(r"^Model:\s*(.+)$", path.read_text(errors="replace"), re.MULTILINE)
        names.append(match[1] if match else "unknown model")
    version = DRIVER_FILES / "version"
    text = version.read_text(errors="replace") if version.exists() else ""
    number = re.search(r"\b(\d+\.\d+(\.\d+)?)\b", text)
    return names, number[1] if number else "of unknown version"
