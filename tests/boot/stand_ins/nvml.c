/* One healthy GPU without processes, in the part of NVML that the agent uses. */
#include <string.h>

enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, TIMEOUT = 10 };
static int gpu, events;

int nvmlInitWithFlags(unsigned flags) { return OK; }
int nvmlInit_v2(void) { return OK; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { return "an error of the stand-in"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = &gpu; return index ? NOT_FOUND : OK; }
int nvmlDeviceGetUUID(void *device, char *text, unsigned size) {
  strncpy(text, "GPU-00000000-0000-0000-0000-000000000001", size);
  return OK;
}
int nvmlDeviceGetName(void *device, char *text, unsigned size) { strncpy(text, "NVIDIA L4", size); return OK; }
int nvmlDeviceGetPciInfo_v3(void *device, char *info) {
  strcpy(info + 36, "00000000:00:1E.0"); /* nvmlPciInfo_t.busId */
  return OK;
}
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius) { *celsius = 40; return OK; }
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) { *milliwatts = 30000; return OK; }
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *bytes) {
  bytes[0] = bytes[1] = 24ULL << 30;
  bytes[2] = 0;
  return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count) { *count = 0; return OK; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, void *infos) { *count = 0; return OK; }
int nvmlDeviceGetProcessUtilization(void *device, void *samples, unsigned *count, unsigned long long since) {
  return NOT_FOUND;
}
int nvmlDeviceGetUtilizationRates(void *device, unsigned *rates) { rates[0] = rates[1] = 0; return OK; }
int nvmlDeviceGetTotalEccErrors(void *device, int kind, int counter, unsigned long long *count) {
  *count = 0;
  return OK;
}
int nvmlEventSetCreate(void **set) { *set = &events; return OK; }
int nvmlEventSetFree(void *set) { return OK; }
int nvmlDeviceRegisterEvents(void *device, unsigned long long kinds, void *set) { return OK; }
int nvmlEventSetWait_v2(void *set, void *data, unsigned milliseconds) { return TIMEOUT; }
