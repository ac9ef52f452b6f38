/* Stands in for NVIDIA's driver library: two devices, the second of a kind that tells little. */
#include <string.h>
enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6 };
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version, supported; } Support;
typedef struct { unsigned id; int result; double value; struct { char *shortName, *longName, *unit; } info; } Metric;
typedef struct { unsigned version, count; long *sample1, *sample2; Metric metrics[1]; } MetricsGet;
static long clocks, samples[64], handles[2];
static int old(void *device) { return device == &handles[1]; }
int nvmlInitWithFlags(unsigned flags) { return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = &handles[index]; return OK; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    *device = &handles[!strcmp(uuid, "MIG-old")];
    return strcmp(uuid, "GPU-new") && strcmp(uuid, "MIG-old") ? NOT_FOUND : OK;
}
int nvmlDeviceGetName(void *device, char *name, unsigned length) {
    strncpy(name, old(device) ? "Old One" : "New One", length);
    return OK;
}
int nvmlDeviceGetUtilizationRates(void *device, Utilization *rates) { rates->gpu = 75; rates->memory = 10; return OK; }
int nvmlDeviceGetMemoryInfo(void *device, Memory *memory) {
    memory->total = 80000000000ull; memory->used = 20000000000ull; memory->free = 60000000000ull;
    return OK;
}
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
    *milliwatts = 312500;
    return old(device) ? NOT_SUPPORTED : OK;
}
int nvmlGpmQueryDeviceSupport(void *device, Support *support) { support->supported = !old(device); return OK; }
int nvmlGpmSampleAlloc(long **sample) { static int next; *sample = &samples[next++]; return OK; }
int nvmlGpmSampleGet(void *device, long *sample) { *sample = ++clocks; return OK; }
int nvmlGpmMetricsGet(MetricsGet *question) {
    question->metrics[0].result = question->version == 1 && question->metrics[0].id == 2 ? OK : NOT_SUPPORTED;
    question->metrics[0].value = 40.0 + (*question->sample2 - *question->sample1);
    return OK;
}
