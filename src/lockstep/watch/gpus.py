"""Samples of a host's GPUs, read from NVIDIA's driver. A host without the driver has none."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ParamSpec, TypedDict, TypeVar

if TYPE_CHECKING:
    from pynvml import c_nvmlDevice_t

P = ParamSpec("P")
T = TypeVar("T")


class GpuSample(TypedDict):
    """One GPU at one moment. A figure that the device does not offer is None: power on small devices, SM activity on
    devices before Hopper."""

    index: int
    name: str | None
    utilisation: float | None
    memory_used: int | None
    memory_total: int | None
    watts: float | None
    sm_activity: float | None


class Gpus:
    """A source for the sampler: returns a sample of the GPUs with these UUIDs, as torch writes them; by default of all.
    torch's numbers of GPUs are not the driver's: CUDA_VISIBLE_DEVICES leaves some out, and torch sorts them by speed."""

    def __init__(self, uuids: Sequence[str] | None = None) -> None:
        import pynvml

        self._nvml = pynvml
        self._devices: list[tuple[c_nvmlDevice_t, str | None, _SmActivity | None]] = []
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:  # no driver, no device, or no permission
            return
        handles = self._find_all() if uuids is None else [self._find(uuid) for uuid in uuids]
        for handle in handles:
            if handle is None:
                continue
            name = self._query(pynvml.nvmlDeviceGetName, handle)
            self._devices.append((handle, name, self._query(_SmActivity, handle)))

    def _find_all(self) -> "list[c_nvmlDevice_t]":
        return [self._nvml.nvmlDeviceGetHandleByIndex(index) for index in range(self._nvml.nvmlDeviceGetCount())]

    def _find(self, uuid: str) -> "c_nvmlDevice_t | None":
        """Returns a GPU, or the part of one that MIG makes; None if the driver does not know it."""
        names = [uuid] if uuid.startswith(("GPU-", "MIG-")) else [f"GPU-{uuid}", f"MIG-{uuid}"]
        handles = (self._query(self._nvml.nvmlDeviceGetHandleByUUID, name.encode()) for name in names)
        return next((handle for handle in handles if handle is not None), None)

    def _query(self, ask: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Returns what the driver answers, or None when the device does not support the question."""
        try:
            return ask(*args, **kwargs)
        except self._nvml.NVMLError:
            return None

    def __call__(self, seconds: float) -> list[GpuSample]:
        nvml, samples = self._nvml, list[GpuSample]()
        for index, (handle, name, activity) in enumerate(self._devices):
            rates = self._query(nvml.nvmlDeviceGetUtilizationRates, handle)
            memory = self._query(nvml.nvmlDeviceGetMemoryInfo, handle)
            milliwatts = self._query(nvml.nvmlDeviceGetPowerUsage, handle)
            samples.append(
                {
                    "index": index,
                    "name": name,
                    "utilisation": None if rates is None else rates.gpu / 100,
                    "memory_used": None if memory is None else int(memory.used),
                    "memory_total": None if memory is None else int(memory.total),
                    "watts": None if milliwatts is None else milliwatts / 1000,
                    "sm_activity": None if activity is None else self._query(activity.read_share),
                }
            )
        return samples


class _SmActivity:
    """The share of multiprocessors that were busy between two readings. Utilization only says that any of them was: it is
    100 % also while a kernel waits for the network."""

    def __init__(self, handle: "c_nvmlDevice_t") -> None:
        import pynvml as nvml

        if not nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
            raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
        self._nvml, self._handle = nvml, handle
        self._before, self._now = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
        nvml.nvmlGpmSampleGet(handle, self._before)

    def read_share(self) -> float | None:
        """Returns the share since the last reading, from 0 to 1."""
        nvml = self._nvml
        nvml.nvmlGpmSampleGet(self._handle, self._now)
        request = nvml.c_nvmlGpmMetricsGet_t()
        request.version, request.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, 1
        request.sample1, request.sample2 = self._before, self._now
        request.metrics[0].metricId = nvml.NVML_GPM_METRIC_SM_UTIL
        answer = nvml.nvmlGpmMetricsGet(request).metrics[0]
        self._before, self._now = self._now, self._before
        return float(answer.value) / 100 if answer.nvmlReturn == nvml.NVML_SUCCESS else None
