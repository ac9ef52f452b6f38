"""The GPUs of a host, as NVIDIA's driver tells of them. Without the driver there are none."""

from collections.abc import Callable
from typing import Any


class Gpus:
    """Figures a device does not give are null: power on small ones, SM activity before Hopper."""

    def __init__(self) -> None:
        import pynvml

        self._nvml = pynvml
        self._devices: list[tuple[Any, str | None, _Activity | None]] = []
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:  # no driver, no device, or none for us
            return
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            name = self._given(pynvml.nvmlDeviceGetName, handle)
            self._devices.append((handle, name, self._given(_Activity, handle)))

    def _given(self, ask: Callable[..., Any], *words: Any) -> Any:
        try:
            return ask(*words)
        except self._nvml.NVMLError:
            return None

    def __call__(self, seconds: float) -> list[dict[str, Any]]:
        nvml, found = self._nvml, []
        for index, (handle, name, activity) in enumerate(self._devices):
            rates = self._given(nvml.nvmlDeviceGetUtilizationRates, handle)
            memory = self._given(nvml.nvmlDeviceGetMemoryInfo, handle)
            milliwatts = self._given(nvml.nvmlDeviceGetPowerUsage, handle)
            found.append(
                {
                    "index": index,
                    "name": name,
                    "utilisation": None if rates is None else rates.gpu / 100,
                    "memory_used": None if memory is None else int(memory.used),
                    "memory_total": None if memory is None else int(memory.total),
                    "watts": None if milliwatts is None else milliwatts / 1000,
                    "sm_activity": None if activity is None else self._given(activity.share),
                }
            )
        return found


class _Activity:
    """Share of the multiprocessors that were busy between two readings. Utilisation only says that any of them was: it
    stands at 100 % also while a GPU waits for its network inside a kernel."""

    def __init__(self, handle: Any) -> None:
        import pynvml as nvml

        if not nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
            raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
        self._nvml, self._handle = nvml, handle
        self._before, self._now = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
        nvml.nvmlGpmSampleGet(handle, self._before)

    def share(self) -> float | None:
        nvml = self._nvml
        nvml.nvmlGpmSampleGet(self._handle, self._now)
        question = nvml.c_nvmlGpmMetricsGet_t()
        question.version, question.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, 1
        question.sample1, question.sample2 = self._before, self._now
        question.metrics[0].metricId = nvml.NVML_GPM_METRIC_SM_UTIL
        answer = nvml.nvmlGpmMetricsGet(question).metrics[0]
        self._before, self._now = self._now, self._before
        return float(answer.value) / 100 if answer.nvmlReturn == nvml.NVML_SUCCESS else None
