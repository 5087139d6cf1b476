// memory -- where tensors live, what ops need besides them, and the few plain vector operations.

void* device_allocate(size_t bytes);      // whole pages, touched; fatal() with the size when there are none
void device_free(void* p, size_t bytes);
size_t device_available();                // bytes that can still be allocated; 0: unknown
size_t device_in_use();                   // bytes: of the host's memory by this process, of a GPU's by all
std::string device_name();
std::string device_bus_id();              // "0000:17:00.0"; empty: it is no PCI device
double device_tflops();                   // of products in this precision, as its maker states it; 0: unknown
bool reached_by_host();                   // whether the device's memory is the host's
bool on_device(const void* p);            // whether only ops and copies may touch it
void synchronize();                       // returns when all that this rank's ops and copies do is done

// What ops may use between entry and return: as much as walk.needs().scratch says of the ops that will run.
void lend_scratch(void* memory, size_t bytes);

// Builds what libraries build on first use (threads, compiled code) for the recorded ops, so that a step
// builds nothing.
void warm_up(const Walk& walk);

// Opens this rank's device and the libraries that take memory there by themselves, rather than on first use.
void open_device();

// Memory of the host that the device copies fast from and to.
void* host_allocate(size_t bytes);
void host_free(void* p, size_t bytes);

// Copies between any two memories. They start when the ops that were called before are done, run beside ops
// that are called after, one after the other; those that are called after finish_copies() see them done, and
// what was copied to the host is there when it returns.
void start_copy(void* out, const void* in, size_t bytes);
void finish_copies();

// For a host that need not wait at once: mark_copies() takes what was started since out of what
// finish_copies() waits for on the host, await_copies() waits for all up to the mark, if it was ever set.
inline constexpr int kMarks = 8;
void mark_copies(int mark);
void await_copies(int mark);

void set_zero(void* p, size_t bytes);
// Between the host and what was allocated, by device_allocate() or host_allocate(), in order with the ops.
// `from` may be changed as soon as copy_to_device returns, and `to` is there when copy_to_host does.
void copy_to_device(void* to, const void* from, size_t bytes);
void copy_to_host(void* to, const void* from, size_t bytes);
void copy_on_device(void* to, const void* from, size_t bytes);
void round_to(floatX* out, const real* in, size_t count);      // nearest, ties to even
void accumulate(real* sum, const real* values, size_t count);  // sum += values
void copy(floatX* out, const floatX* in, size_t count);
void sum_in_order(double* total, const real* values, size_t count);   // total +=, one value after the other
void sum_rows(double* out, const double* in, int rows, int cols);     // in: (rows, cols), in their order

// out = the sum of `parts` pieces of `count` elements, in their order, rounded once. out may be one of them.
void sum_pieces(floatX* out, const floatX* const* pieces, int parts, size_t count);
// The same of real values, each rounded to floatX before it is added.
void sum_rounded(real* out, const real* const* pieces, int parts, size_t count);
// The same of rounded values.
void sum_widened(real* out, const floatX* const* pieces, int parts, size_t count);

// ---- costs

inline Cost copy_cost(const Target&, const char* name, size_t bytes) {
    return {.name = name, .kind = Kind::Copy, .read = bytes, .written = bytes};
}
inline Cost wait_cost(const Target&, const char* name) { return {.name = name, .kind = Kind::Wait}; }
inline Cost sum_rows_cost(const Target&, int rows, int cols) {
    const size_t n = size_t(cols) * sizeof(double);
    return {.name = "sum_rows", .read = size_t(rows) * n, .written = n};
}
inline Cost vector_cost(const Target&, const char* name, size_t read, size_t written) {
    return {.name = name, .read = read, .written = written};
}

// What costs are meant for: the device that is described, or the one of this backend.
inline Target target() {
    if (context.target) return *context.target;
    return {.backend = reached_by_host() ? Target::Cpu : Target::Cuda, .threads = context.threads};
}
// What the ops that f() calls need there; nothing runs.
template <class F> Needs needs_of(F&& f) { return walk_of(target(), f).needs(); }
