// A driver without a GPU. It refuses what NVIDIA's would refuse of memory, tensor maps, attributes and launches, by what
// the cubin says of its kernels, and writes down what it was asked. Memory of the "device" is the host's. It computes
// nothing itself: whoever wants results gives it a function that runs kernels (driver_run_with).
#include <cuda.h>
#include <elf.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr unsigned MOST_SHARED = 232448, WITHOUT_ASKING = 48 * 1024, REGISTERS = 65536, PROCESSORS = 132;

struct Kernel {
  std::string name;
  std::map<unsigned, unsigned> parameters;  // sizes in bytes, by number
  unsigned registers = 0, threads = 0, cluster = 0, static_shared = 0, allowed = WITHOUT_ASKING;
};
struct Module {
  std::map<std::string, Kernel> kernels;
};

bool begun = false, current = false;
const bool at_once = std::getenv("DRIVER_AT_ONCE") != nullptr;  // launches are taken as they are: what asking takes
std::map<CUdeviceptr, size_t> memory;
CUdeviceptr next_address = CUdeviceptr(1) << 36;  // of memory, below 2^40 as on a device

// A kernel's launch: its name; the grid, the block, bytes of shared memory and blocks of a cluster; its parameters and
// their sizes; all allocations, as addresses and sizes. Other than 0 where it went wrong.
struct Launch {
  const char* name;
  unsigned shape[8], count;
  void** parameters;
  const unsigned* sizes;
  unsigned allocations;
  const uint64_t* extents;
};
int (*run_kernel)(const Launch*) = nullptr;

// A tensor map as the PTX machine reads it (treadle/runtime/ptx/tensor_map_images.py).
struct __attribute__((packed)) Map {
  char magic[4];
  uint16_t rank, element_bytes, span, zero;
  uint64_t address, sizes[5], strides[4];
  uint16_t box[5];
};
static_assert(sizeof(Map) <= sizeof(CUtensorMap));
constexpr char MAGIC[] = "map ";

template <class... Parts>
void tell(const char* format, Parts... parts) {
  static FILE* const log = std::getenv("DRIVER_LOG") ? std::fopen(std::getenv("DRIVER_LOG"), "a") : stderr;
  std::fprintf(log, format, parts...);
  std::fputc('\n', log);
  std::fflush(log);
}

template <class... Parts>
CUresult refuse(CUresult code, const char* format, Parts... parts) {
  tell((std::string("refused: ") + format).c_str(), parts...);
  return code;
}

bool in_memory(CUdeviceptr from, size_t bytes) {
  auto after = memory.upper_bound(from);
  if (after == memory.begin()) return false;
  --after;
  return from + bytes <= after->first + after->second;
}

// The attributes of one section `.nv.info..`: a byte for the form, one for what it is, then a value, or its size and it.
template <class Each>
void attributes_of(const unsigned char* at, size_t size, Each each) {
  for (size_t i = 0; i + 4 <= size;) {
    uint16_t value;
    memcpy(&value, at + i + 2, 2);
    const bool has_size = at[i] == 4;
    each(at[i + 1], at + i + (has_size ? 4 : 2), has_size ? value : 2u);
    i += 4 + (has_size ? value : 0);
  }
}

uint32_t word(const unsigned char* at) {
  uint32_t found;
  memcpy(&found, at, 4);
  return found;
}

void read_cubin(const unsigned char* image, Module& module) {
  const auto* head = reinterpret_cast<const Elf64_Ehdr*>(image);
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(image + head->e_shoff);
  const char* names = reinterpret_cast<const char*>(image + sections[head->e_shstrndx].sh_offset);
  const std::string of_kernel = ".nv.info.", of_shared = ".nv.shared.";
  const Elf64_Sym* symbols = nullptr;
  const char* symbol_names = nullptr;
  for (int i = 0; i < head->e_shnum; ++i)
    if (sections[i].sh_type == SHT_SYMTAB) {
      symbols = reinterpret_cast<const Elf64_Sym*>(image + sections[i].sh_offset);
      symbol_names = reinterpret_cast<const char*>(image + sections[sections[i].sh_link].sh_offset);
    }
  for (int i = 0; i < head->e_shnum; ++i) {
    const std::string name = names + sections[i].sh_name;
    const unsigned char* at = image + sections[i].sh_offset;
    if (name.compare(0, of_shared.size(), of_shared) == 0)
      module.kernels[name.substr(of_shared.size())].static_shared = unsigned(sections[i].sh_size);
    if (name.compare(0, of_kernel.size(), of_kernel) == 0) {
      Kernel& kernel = module.kernels[name.substr(of_kernel.size())];
      kernel.name = name.substr(of_kernel.size());
      attributes_of(at, sections[i].sh_size, [&](unsigned what, const unsigned char* value, unsigned bytes) {
        if (what == 0x17) kernel.parameters[word(value + 4) & 0xffff] = word(value + 8) >> 18;  // KPARAM_INFO
        if (what == 0x05) kernel.threads = word(value);                                        // MAX_THREADS
        if (what == 0x3d && bytes >= 4) kernel.cluster = word(value);                          // CTA_PER_CLUSTER
      });
    }
    if (name == ".nv.info")
      attributes_of(at, sections[i].sh_size, [&](unsigned what, const unsigned char* value, unsigned) {
        if (what == 0x2f && symbols)  // REGCOUNT: a symbol, and how many
          module.kernels[symbol_names + symbols[word(value)].st_name].registers = word(value + 4);
      });
  }
}

std::vector<std::pair<std::string, void*>> functions();

int version_of_driver() { return std::getenv("DRIVER_CUDA") ? std::atoi(std::getenv("DRIVER_CUDA")) : CUDA_VERSION; }

}  // namespace

EXPORT void driver_run_with(int (*run)(const Launch*)) { run_kernel = run; }
EXPORT CUresult cuInit(unsigned) { return begun = true, CUDA_SUCCESS; }
EXPORT CUresult cuDriverGetVersion(int* version) { return *version = version_of_driver(), CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGetCount(int* count) { return *count = 1, begun ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED; }
EXPORT CUresult cuDeviceGet(CUdevice* device, int number) {
  *device = number;
  return number == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
EXPORT CUresult cuDeviceGetName(char* name, int length, CUdevice) {
  std::snprintf(name, size_t(length), "NVIDIA H100 80GB HBM3");
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceTotalMem(size_t* bytes, CUdevice) { return *bytes = size_t(80) << 30, CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute what, CUdevice) {
  switch (what) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return *value = 9, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return *value = 0, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return *value = PROCESSORS, CUDA_SUCCESS;
    default: return refuse(CUDA_ERROR_INVALID_VALUE, "attribute %d", int(what));
  }
}
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  *context = reinterpret_cast<CUcontext>(0x1000);
  return begun ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}
EXPORT CUresult cuCtxSetCurrent(CUcontext context) { return current = context != nullptr, CUDA_SUCCESS; }
EXPORT CUresult cuCtxGetDevice(CUdevice* device) {
  return *device = 0, current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}
EXPORT CUresult cuCtxSynchronize() { return current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT; }

EXPORT CUresult cuMemAlloc(CUdeviceptr* pointer, size_t bytes) {
  if (!current) return CUDA_ERROR_INVALID_CONTEXT;
  if (bytes == 0) return refuse(CUDA_ERROR_INVALID_VALUE, "an allocation of no bytes");
  const size_t pages = (bytes + 4095) / 4096 * 4096;
  void* const asked = reinterpret_cast<void*>(next_address);
  const int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
  if (mmap(asked, pages, PROT_READ | PROT_WRITE, how, -1, 0) != asked) return CUDA_ERROR_OUT_OF_MEMORY;
  *pointer = next_address;
  memory[*pointer] = bytes;
  next_address += pages + 4096;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemFree(CUdeviceptr pointer) {
  const auto found = memory.find(pointer);
  if (found == memory.end()) return refuse(CUDA_ERROR_INVALID_VALUE, "free of what was not allocated");
  munmap(reinterpret_cast<void*>(pointer), found->second);
  return memory.erase(found), CUDA_SUCCESS;
}
EXPORT CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes) {
  if (!in_memory(to, bytes)) return refuse(CUDA_ERROR_INVALID_VALUE, "a copy past an allocation");
  return memcpy(reinterpret_cast<void*>(to), from, bytes), CUDA_SUCCESS;
}
EXPORT CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes) {
  if (!in_memory(from, bytes)) return refuse(CUDA_ERROR_INVALID_VALUE, "a copy past an allocation");
  return memcpy(to, reinterpret_cast<void*>(from), bytes), CUDA_SUCCESS;
}

EXPORT CUresult cuEventCreate(CUevent* event, unsigned) {
  return *event = reinterpret_cast<CUevent>(new int), CUDA_SUCCESS;
}
EXPORT CUresult cuEventRecord(CUevent event, CUstream) { return event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; }
EXPORT CUresult cuEventSynchronize(CUevent event) { return event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; }
EXPORT CUresult cuEventElapsedTime(float* milliseconds, CUevent, CUevent) {
  return *milliseconds = 0.5f, CUDA_SUCCESS;
}

EXPORT CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  if (!current) return CUDA_ERROR_INVALID_CONTEXT;
  if (version_of_driver() / 1000 < CUDA_VERSION / 1000)
    return refuse(CUDA_ERROR_NO_BINARY_FOR_GPU, "machine code of CUDA %d by a driver of %d", CUDA_VERSION, version_of_driver());
  if (memcmp(image, ELFMAG, SELFMAG) != 0) return refuse(CUDA_ERROR_INVALID_IMAGE, "an image that is no ELF file");
  auto* const made = new Module;
  read_cubin(static_cast<const unsigned char*>(image), *made);
  return *module = reinterpret_cast<CUmodule>(made), CUDA_SUCCESS;
}
EXPORT CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  auto& kernels = reinterpret_cast<Module*>(module)->kernels;
  if (!kernels.count(name)) return refuse(CUDA_ERROR_NOT_FOUND, "no kernel %s", name);
  return *function = reinterpret_cast<CUfunction>(&kernels[name]), CUDA_SUCCESS;
}
EXPORT CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute what, int value) {
  auto& kernel = *reinterpret_cast<Kernel*>(function);
  if (what != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_ERROR_INVALID_VALUE;
  if (value < 0 || unsigned(value) + kernel.static_shared > MOST_SHARED)
    return refuse(CUDA_ERROR_INVALID_VALUE, "%s: %d bytes of dynamic shared memory", kernel.name.c_str(), value);
  return kernel.allowed = unsigned(value), CUDA_SUCCESS;
}

namespace {

CUresult run(const Kernel& kernel, const CUlaunchConfig& config, unsigned cluster, void** parameters) {
  std::vector<unsigned> sizes;
  std::vector<uint64_t> extents;
  for (const auto& [number, bytes] : kernel.parameters) sizes.push_back(bytes);
  for (const auto& [address, bytes] : memory) extents.insert(extents.end(), {uint64_t(address), uint64_t(bytes)});
  const Launch launch = {kernel.name.c_str(),
                         {config.gridDimX, config.gridDimY, config.gridDimZ, config.blockDimX, config.blockDimY,
                          config.blockDimZ, config.sharedMemBytes, cluster},
                         unsigned(sizes.size()),
                         parameters,
                         sizes.data(),
                         unsigned(memory.size()),
                         extents.data()};
  return run_kernel(&launch) == 0 ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED;
}

CUresult launch(Kernel& kernel, const CUlaunchConfig& config, void** parameters) {
  const char* const name = kernel.name.c_str();
  const unsigned threads = config.blockDimX * config.blockDimY * config.blockDimZ;
  unsigned cluster = std::max(1u, kernel.cluster);
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config.attrs[i];
    if (attribute.id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
      return refuse(CUDA_ERROR_INVALID_VALUE, "%s: attribute %d", name, int(attribute.id));
    const auto& asked = attribute.value.clusterDim;
    if (kernel.cluster && (asked.x != kernel.cluster || asked.y != 1 || asked.z != 1))
      return refuse(CUDA_ERROR_INVALID_VALUE, "%s: a cluster of %u, compiled for %u", name, asked.x, kernel.cluster);
    cluster = asked.x;
  }
  if (!current) return CUDA_ERROR_INVALID_CONTEXT;
  if (config.gridDimX == 0 || config.gridDimY == 0 || config.gridDimZ == 0 || config.gridDimX > 0x7fffffffu ||
      config.gridDimY > 65535 || config.gridDimZ > 65535)
    return refuse(CUDA_ERROR_INVALID_VALUE, "%s: a grid of %u x %u x %u", name, config.gridDimX, config.gridDimY,
                  config.gridDimZ);
  if (threads == 0 || threads > 1024 || (kernel.threads && threads > kernel.threads))
    return refuse(CUDA_ERROR_INVALID_VALUE, "%s: %u threads, compiled for %u", name, threads, kernel.threads);
  if (cluster > 8 || config.gridDimX % cluster)
    return refuse(CUDA_ERROR_INVALID_CLUSTER_SIZE, "%s: clusters of %u in %u blocks", name, cluster, config.gridDimX);
  if (config.sharedMemBytes > kernel.allowed)
    return refuse(CUDA_ERROR_INVALID_VALUE, "%s: %u bytes of shared memory, %u allowed", name, config.sharedMemBytes,
                  kernel.allowed);
  const unsigned each = (kernel.registers + 7) / 8 * 8;  // a warp takes multiples of 256 registers
  if (each * ((threads + 31) / 32 * 32) > REGISTERS)
    return refuse(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "%s: %u registers in %u threads", name, each, threads);
  if (!kernel.parameters.empty() && !parameters)
    return refuse(CUDA_ERROR_INVALID_VALUE, "%s: no parameters", name);
  std::string maps;
  for (const auto& [number, bytes] : kernel.parameters) {
    const auto at = reinterpret_cast<uintptr_t>(parameters[number]);
    if (!at) return refuse(CUDA_ERROR_INVALID_VALUE, "%s: parameter %u is nowhere", name, number);
    std::vector<unsigned char> held(bytes);
    memcpy(held.data(), parameters[number], bytes);
    if (bytes != 128) continue;
    if (at % 64) return refuse(CUDA_ERROR_INVALID_VALUE, "%s: the tensor map at %zx", name, size_t(at));
    if (memcmp(held.data(), MAGIC, 4) != 0)
      return refuse(CUDA_ERROR_INVALID_VALUE, "%s: parameter %u is no tensor map", name, number);
    maps += " map";
  }
  tell("launched %s: %u blocks of %u threads, %u bytes, clusters of %u, %zu parameters%s", name, config.gridDimX,
       threads, config.sharedMemBytes, cluster, kernel.parameters.size(), maps.c_str());
  return run_kernel ? run(kernel, config, cluster, parameters) : CUDA_SUCCESS;
}

}  // namespace

EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by,
                               unsigned bz, unsigned shared, CUstream stream, void** parameters, void** extra) {
  if (at_once) return CUDA_SUCCESS;
  if (extra) return refuse(CUDA_ERROR_INVALID_VALUE, "parameters are given twice");
  CUlaunchConfig config = {x, y, z, bx, by, bz, shared, stream, nullptr, 0};
  return launch(*reinterpret_cast<Kernel*>(function), config, parameters);
}
EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra) {
  if (at_once) return CUDA_SUCCESS;
  if (extra) return refuse(CUDA_ERROR_INVALID_VALUE, "parameters are given twice");
  return launch(*reinterpret_cast<Kernel*>(function), *config, parameters);
}

// The rules that the documentation of cuTensorMapEncodeTiled states.
EXPORT CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                       const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                                       const cuuint32_t* steps, CUtensorMapInterleave interleave,
                                       CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  const auto wrong = CUDA_ERROR_INVALID_VALUE;
  const unsigned bytes = type == CU_TENSOR_MAP_DATA_TYPE_UINT8                                                  ? 1
                         : type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16 || type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 ? 2
                                                                                                               : 4;
  const unsigned spans[] = {256, 32, 64, 128};
  if (reinterpret_cast<uintptr_t>(map) % 64) return refuse(wrong, "a tensor map is written to %p", (void*)map);
  if (rank == 0 || rank > 5) return refuse(wrong, "a tensor map of rank %u", rank);
  if (reinterpret_cast<uintptr_t>(address) % 16 || !in_memory(reinterpret_cast<CUdeviceptr>(address), 1))
    return refuse(wrong, "a tensor map of %p", address);
  if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || swizzle > CU_TENSOR_MAP_SWIZZLE_128B)
    return refuse(wrong, "interleave %d, swizzle %d", int(interleave), int(swizzle));
  size_t reach = bytes;
  for (unsigned i = 0; i < rank; ++i) {
    if (sizes[i] == 0 || sizes[i] > uint64_t(1) << 32) return refuse(wrong, "size %u is %zu", i, size_t(sizes[i]));
    if (box[i] == 0 || box[i] > 256) return refuse(wrong, "side %u of a box is %u", i, box[i]);
    if (steps[i] == 0 || steps[i] > 8) return refuse(wrong, "element stride %u is %u", i, steps[i]);
    if (i && (strides[i - 1] % 16 || strides[i - 1] >= uint64_t(1) << 40))
      return refuse(wrong, "stride %u is %zu", i, size_t(strides[i - 1]));
    reach += (sizes[i] - 1) * (i ? strides[i - 1] : bytes);
  }
  if (box[0] * bytes % 16 || box[0] * bytes > spans[swizzle])
    return refuse(wrong, "the inner side of a box has %u bytes, the swizzle %u", box[0] * bytes, spans[swizzle]);
  if (!in_memory(reinterpret_cast<CUdeviceptr>(address), reach))
    return refuse(wrong, "a tensor map reaches %zu bytes, past its allocation", reach);
  Map image = {};
  memcpy(image.magic, MAGIC, 4);
  image.rank = uint16_t(rank);
  image.element_bytes = uint16_t(bytes);
  image.span = uint16_t(swizzle == CU_TENSOR_MAP_SWIZZLE_NONE ? 0 : spans[swizzle]);
  image.address = reinterpret_cast<uintptr_t>(address);
  for (unsigned i = 0; i < rank; ++i) {
    image.sizes[i] = sizes[i];
    image.box[i] = uint16_t(box[i]);
    if (i) image.strides[i - 1] = strides[i - 1];
  }
  memset(map, 0, sizeof *map);
  memcpy(map, &image, sizeof image);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuGetErrorName(CUresult code, const char** name) {
  static char text[32];
  std::snprintf(text, sizeof text, "CUDA_ERROR_%d", int(code));
  return *name = text, CUDA_SUCCESS;
}

EXPORT CUresult cuGetProcAddress_v2(const char* name, void** found, int, cuuint64_t,
                                    CUdriverProcAddressQueryResult* result) {
  *found = nullptr;
  for (const auto& [known, function] : functions())
    if (known == name) *found = function;
  if (result) *result = *found ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

namespace {

// By the names without versions, as they are asked for.
std::vector<std::pair<std::string, void*>> functions() {
#define AS(name, function) {#name, reinterpret_cast<void*>(function)}
  return {AS(cuInit, cuInit),
          AS(cuDriverGetVersion, cuDriverGetVersion),
          AS(cuDeviceGetCount, cuDeviceGetCount),
          AS(cuDeviceGet, cuDeviceGet),
          AS(cuDeviceGetName, cuDeviceGetName),
          AS(cuDeviceGetAttribute, cuDeviceGetAttribute),
          AS(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain),
          AS(cuCtxSetCurrent, cuCtxSetCurrent),
          AS(cuCtxGetDevice, cuCtxGetDevice),
          AS(cuCtxSynchronize, cuCtxSynchronize),
          AS(cuMemAlloc, cuMemAlloc),
          AS(cuMemFree, cuMemFree),
          AS(cuMemcpyHtoD, cuMemcpyHtoD),
          AS(cuMemcpyDtoH, cuMemcpyDtoH),
          AS(cuEventCreate, cuEventCreate),
          AS(cuEventRecord, cuEventRecord),
          AS(cuEventSynchronize, cuEventSynchronize),
          AS(cuEventElapsedTime, cuEventElapsedTime),
          AS(cuModuleLoadData, cuModuleLoadData),
          AS(cuModuleGetFunction, cuModuleGetFunction),
          AS(cuFuncSetAttribute, cuFuncSetAttribute),
          AS(cuLaunchKernel, cuLaunchKernel),
          AS(cuLaunchKernelEx, cuLaunchKernelEx),
          AS(cuTensorMapEncodeTiled, cuTensorMapEncodeTiled),
          AS(cuGetErrorName, cuGetErrorName)};
#undef AS
}

}  // namespace
