// memory -- memory of tensors, scratch of ops, copies, and a few plain vector operations.

void* device_allocate(size_t bytes);      // whole pages, touched; fatal() with the size on failure
void device_free(void* p, size_t bytes);
size_t device_available();                // bytes that can still be allocated; 0: unknown
size_t device_in_use();                   // bytes: of the host by this process, of a GPU by all processes
std::string device_name();
std::string device_bus_id();              // "0000:17:00.0"; empty: no PCI device
double device_tflops();                   // of products in this precision, by the maker's figure; 0: unknown
bool reached_by_host();                   // whether the device's memory is the host's
bool on_device(const void* p);            // whether only ops and copies may touch it
void synchronize();                       // returns when this rank's ops and copies are complete

// Scratch of ops between entry and return: walk.needs().scratch bytes of the ops that will run.
void lend_scratch(void* memory, size_t bytes);

// Lets libraries build threads and code for the recorded ops now, so that a step builds nothing.
void warm_up(const Walk& walk);

// Opens this rank's device and the libraries that allocate memory there, before their first use.
void open_device();

// Host memory for fast copies by the device.
void* host_allocate(size_t bytes);
void host_free(void* p, size_t bytes);
// The same for memory that lies in whole pages already; until unpin(), which frees nothing.
void pin(void* p, size_t bytes);
void unpin(void* p, size_t bytes);

// Copies between the host and the device, beside the ops. Each direction is a lane: the copies of a lane
// follow each other, and the lanes run beside each other. A copy starts when earlier ops are complete.
void start_copy_to_device(void* to, const void* from, size_t bytes);
void start_copy_to_host(void* to, const void* from, size_t bytes);

// A ticket stands for the copies that its lane had been given at the last mark. Without a mark nothing waits.
struct CopyTicket {
    void* event = nullptr;         // of a GPU
    int number = -1;               // in the first walk that marks it
    CopyTicket() = default;
    CopyTicket(const CopyTicket&) = delete;
    ~CopyTicket();
};
// *arrived, on the host, receives seconds_now() when those copies complete, even if nobody waits.
void mark_copies(CopyTicket& ticket, CopyLane lane, double* arrived = nullptr);
void await_copies(const CopyTicket& ticket);           // later ops and copies see the copies complete
void host_awaits_copies(const CopyTicket& ticket);
void finish_copies();                                  // the host awaits all copies

void set_zero(void* p, size_t bytes);
// Copies between the host and memory of device_allocate() or host_allocate(), in order with the ops. `from`
// may change as soon as copy_to_device() returns, and `to` is complete when copy_to_host() returns.
void copy_to_device(void* to, const void* from, size_t bytes);
void copy_to_host(void* to, const void* from, size_t bytes);
void copy_on_device(void* to, const void* from, size_t bytes);
void round_to(floatX* out, const real* in, size_t count);      // nearest, ties to even
void accumulate(real* sum, const real* values, size_t count);  // sum += values
void copy(floatX* out, const floatX* in, size_t count);
void sum_in_order(double* total, const real* values, size_t count);   // total +=, one value after the other
void sum_rows(double* out, const double* in, int rows, int cols);     // in: (rows, cols), in their order

// join_rows(): concatenates, for each sequence, `before` cached rows that sequences may share and the
// sequence's own T rows:
//     out[b] = kept[from[b]], own[b]                  out: (B, before + T, width), dense
struct JoinedRows {
    const floatX* kept;         // (*, before, width)
    const int32_t* from;        // (B)
    const floatX* own;          // (B, T) rows of `width` elements, `stride` apart
    size_t stride;
    int B, before, T, width;
};
void join_rows(floatX* out, const JoinedRows& j);

// Copies `rows` rows of `width` elements, which lie apart by these strides. Nothing overlaps.
struct RowCopy {
    const floatX* from;
    ptrdiff_t stride, out_stride;       // from row to row; negative: backwards
    int rows;
    size_t width;
};
void copy_rows(floatX* out, const RowCopy& c);
void add(floatX* sum, const floatX* values, size_t count);     // sum += values, rounded once

// out = the sum of `number` terms of `count` elements, added in order, rounded once. out may be a term.
void sum_terms(floatX* out, const floatX* const* terms, int number, size_t count);
// Rounds each real term to floatX, adds in order, writes real.
void sum_rounded(real* out, const real* const* terms, int number, size_t count);
// Adds floatX terms in order, writes real.
void sum_widened(real* out, const floatX* const* terms, int number, size_t count);

// ---- costs

inline Cost copy_cost(const Target&, const char* name, size_t bytes) {
    return {.name = name, .kind = Kind::Copy, .read = bytes, .written = bytes};
}
inline Cost host_copy_cost(const Target& on, CopyLane lane, size_t bytes) {
    Cost cost = copy_cost(on, lane == CopyLane::ToHost ? "copy_to_host" : "copy_to_device", bytes);
    cost.copy.lane = lane;
    return cost;
}
inline Cost start_copy_cost(const Target& on, CopyLane lane, size_t bytes) {
    const bool to_host = lane == CopyLane::ToHost;
    Cost cost = copy_cost(on, to_host ? "start_copy_to_host" : "start_copy_to_device", bytes);
    cost.copy = {.lane = lane, .beside = true};
    return cost;
}
inline Cost ticket_cost(const Target&, const char* name, TicketShape::Op op, const CopyTicket& ticket,
                        CopyLane lane) {
    return {.name = name, .kind = Kind::Wait, .ticket = {op, ticket.number, lane}};
}
inline Cost mark_copies_cost(const Target& on, const CopyTicket& ticket, CopyLane lane) {
    return ticket_cost(on, "mark_copies", TicketShape::Mark, ticket, lane);
}
inline Cost await_copies_cost(const Target& on, const char* name, const CopyTicket& ticket) {
    return ticket_cost(on, name, TicketShape::Await, ticket, CopyLane());
}
inline Cost finish_copies_cost(const Target&) {
    return {.name = "finish_copies", .kind = Kind::Wait, .ticket = {.op = TicketShape::AwaitAll}};
}
inline void number_in_walk(CopyTicket& ticket) {
    if (context.walk && ticket.number < 0) ticket.number = context.walk->tickets++;
}
inline Cost sum_rows_cost(const Target&, int rows, int cols) {
    const size_t n = size_t(cols) * sizeof(double);
    return {.name = "sum_rows", .read = size_t(rows) * n, .written = n};
}
inline Cost join_rows_cost(const Target&, const JoinedRows& j) {
    const size_t bytes = size_t(j.B) * size_t(j.before + j.T) * size_t(j.width) * sizeof(floatX);
    const size_t table = j.before ? size_t(j.B) * sizeof(int32_t) : 0;
    return {.name = "join_rows", .kind = Kind::Copy, .read = bytes + table, .written = bytes};
}
inline Cost copy_rows_cost(const Target&, const RowCopy& c) {
    const size_t bytes = size_t(c.rows) * c.width * sizeof(floatX);
    return {.name = "copy_rows", .kind = Kind::Copy, .read = bytes, .written = bytes};
}
inline Cost vector_cost(const Target&, const char* name, size_t read, size_t written) {
    return {.name = name, .read = read, .written = written};
}

// The device of a cost: the described device, or this backend's.
inline Target target() {
    if (context.target) return *context.target;
    return {.backend = reached_by_host() ? Target::Cpu : Target::Cuda, .threads = context.threads};
}
// The needs of the ops that f() calls, on target(); no op runs.
template <class F> Needs needs_of(F&& f) { return walk_of(target(), f).needs(); }
