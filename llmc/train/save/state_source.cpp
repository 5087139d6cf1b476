#include "llmc/train/save/state_source.h"

#include <cstring>
#include <map>
#include <memory>

#include "llmc/base/check.h"
#include "llmc/base/context.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/guard/wait.h"
#include "llmc/base/numbers/rng.h"
#include "llmc/io/files/safetensors.h"
#include "llmc/train/save/formats/formats.h"
#include "llmc/train/save/rank_state.h"
#include "llmc/train/save/resume.h"

namespace PRECISION::inline saves {

// ---------------------------------------------------------------------------------------------------------
// what ranks have saved

namespace {

// Bytes of a read. Plans count no memory for loading: a few of these fit beside what a save needs.
constexpr size_t kBytes = 64 << 10;

template <class S> void convert(const std::byte* from, size_t count, real* out) {
    for (size_t i = 0; i < count; i++) {
        S v;
        memcpy(&v, from + i * sizeof v, sizeof v);
        out[i] = real(v);
    }
}

struct SavedState {
    std::string from;
    std::function<const std::byte*(const SavedPiece&, Interval)> bytes_of;
    std::map<std::pair<std::string, std::string>, std::vector<const SavedPiece*>> index;

    const std::vector<const SavedPiece*>& require(const Tensor& t, const char* array) const {
        const auto found = index.find({t.name, array});
        CHECK_INPUT(found != index.end(), "{}: there is no {} of '{}': it is of another model", from, array,
                    t.name);
        const std::vector<int64_t> shape = saved_shape(t.param);
        std::vector<int64_t> saved = found->second[0]->shape;
        if (t.name == "wpe" && saved.size() == 2 && saved[0] > shape[0]) saved[0] = shape[0];
        CHECK_INPUT(saved == shape, "{}: '{}' has {} rows of {}, expected {} of {}", from,
                    t.name, saved[0], saved.back(), shape[0], shape.back());
        return found->second;
    }

    // The part of the rectangle that lies in the piece.
    void read(const SavedPiece& p, const Piece& some, real* out) const {
        const size_t row = size_t(p.start[0]), rows_there = size_t(p.extent[0]);
        const size_t col = p.start.size() > 1 ? size_t(p.start[1]) : 0;
        const size_t cols = p.extent.size() > 1 ? size_t(p.extent[1]) : 1;
        Interval rows = common({row, rows_there}, {some.row, some.rows});
        const Interval columns = common({col, cols}, {some.col, some.cols});
        const size_t element = safetensors_dtype_bytes(p.dtype), row_bytes = cols * element;
        while (!columns.empty() && !rows.empty()) {
            const auto [r, n] = rows.take(std::max<size_t>(1, kBytes / row_bytes));
            const std::byte* at = bytes_of(p, {(r - row) * row_bytes, n * row_bytes});
            at += (columns.begin - col) * element;
            for (size_t i = 0; i < n; i++, at += row_bytes)
                convert(p, at, columns.count,
                        out + (r + i - some.row) * some.cols + (columns.begin - some.col));
        }
    }
    void convert(const SavedPiece& p, const std::byte* at, size_t count, real* out) const {
        if (p.dtype == "F32") PRECISION::convert<float>(at, count, out);
        else if (p.dtype == "F64") PRECISION::convert<double>(at, count, out);
        else if (p.dtype == "BF16") PRECISION::convert<bfloat16>(at, count, out);
        else CHECK_INPUT(false, "{}: '{}' is {}, expected F32, F64 or BF16", from, p.tensor, p.dtype);
    }
};

bool is_weights(std::string_view array) { return array == "weights" || array == "master"; }

}  // namespace

StateSource saved_state(const std::string& from, std::span<const SavedPiece> pieces,
                        std::function<const std::byte*(const SavedPiece&, Interval)> bytes_of) {
    auto state = std::make_shared<SavedState>(SavedState{from, std::move(bytes_of), {}});
    for (const SavedPiece& p : pieces) state->index[{p.tensor, p.array}].push_back(&p);
    const auto read = [state](const Tensor& t, const char* array, const Piece& some, real* out) {
        for (const SavedPiece* p : state->require(t, array)) state->read(*p, some, out);
        if (is_weights(array)) check_finite(std::span<const real>(out, some.count()), state->from, t.name);
    };
    return {read, [state](const Tensor& t, const char* array) {
        return state->index.contains({t.name, array});
    }};
}

StateSource checkpoint_state(const std::string& folder, const Manifest& manifest) {
    struct Files {
        std::map<std::string, Fd> open;
        std::vector<std::byte> buffer;
    };
    return saved_state(folder, manifest.pieces, [folder, files = std::make_shared<Files>()](
                                                    const SavedPiece& p, Interval bytes) {
        beat();
        Fd& fd = files->open[p.file];
        const std::string path = folder + "/" + p.file;
        if (!fd) fd = open_read(path);
        files->buffer.resize(bytes.count);
        const Waiting named("a wait for the disk", Awaits::Own);
        pread_all(fd.fd, files->buffer.data(), bytes.count, p.at + bytes.begin, path);
        return files->buffer.data();
    });
}

// ---------------------------------------------------------------------------------------------------------
// other sources

// Copies the rectangle out of whole rows of its tensor, of which the first is the rectangle's.
template <class S> static void cut_out(const S* rows, const Tensor& t, const Piece& some, real* out) {
    for (size_t r = 0; r < some.rows; r++)
        std::copy_n(rows + r * size_t(t.param.whole_cols) + some.col, some.cols, out + r * some.cols);
}

StateSource foreign_weights(const ForeignModel& foreign) {
    return {[&foreign, rows = std::vector<float>()](const Tensor& t, const char*, const Piece& some,
                                                    real* out) mutable {
        rows.resize(some.rows * size_t(t.param.whole_cols));
        foreign.read(t, some.row, some.rows, rows.data());
        cut_out(rows.data(), t, some, out);
    }};
}

StateSource random_weights(const Dims& d, uint64_t seed) {
    return {[d, seed](const Tensor& t, const char*, const Piece& some, real* out) {
        const double std = deviation(t.param, d);
        const real fixed = real(constant(t.param, t.layer, d));
        const uint64_t stream = stream_of(t.name.c_str());
        const size_t whole_cols = size_t(t.param.whole_cols);
        #pragma omp parallel for num_threads(context.threads)
        for (size_t i = 0; i < some.count(); i++) {
            const size_t global = (some.row + i / some.cols) * whole_cols + some.col + i % some.cols;
            out[i] = std > 0 ? real(std * normal(seed, stream, global)) : fixed;
        }
    }};
}

// ---------------------------------------------------------------------------------------------------------
// a rank's share

// Calls put(elements of the bucket, values) for slices of an array that lie in a home.
template <class F>
static void read_share(const Shards& shards, const Tensor& t, const Home& home, const StateSource& from,
                       const char* array, F&& put) {
    std::vector<real> values;
    const Interval all = shards.layout.in_bucket(t);
    for (const Piece& p : pieces_of(t, common(all, home.elements).from(all.begin)))
        for (Interval rest{0, p.rows}; !rest.empty();) {
            beat();
            const auto [r, rows] = rest.take(rows_of_read(p.cols));
            const Piece some{.row = p.row + r, .col = p.col, .rows = rows, .cols = p.cols,
                             .at = p.at + r * p.cols};
            values.resize(some.count());
            from.read(t, array, some, values.data());
            put(Interval{all.begin + some.at, values.size()}, values.data());
        }
}

static void put_weights(Shards& shards, int b, Interval elements, const real* values) {
    floatX rounded[8192];
    for (Interval rest = elements; !rest.empty();) {
        const Interval n = rest.take(std::size(rounded));
        for (size_t i = 0; i < n.count; i++) rounded[i] = floatX(values[n.begin - elements.begin + i]);
        ops::copy_to_device(shards.weight(b, n.begin), rounded, n.count * sizeof(floatX));
    }
}

// Of the elements those that lie here. Moments in bf16 are rounded to nearest, which keeps those of bf16.
static void put_state(const Shards& shards, const StateSlot& slot, int b, Interval elements,
                      const real* values) {
    const Interval here = common(shards.home_of(b, slot).elements, elements);
    if (here.empty()) return;
    const real* const from = values + (here.begin - elements.begin);
    std::byte* const to = shards.state_at(slot, b, here.begin);
    if (slot.dtype == dtype_of<real>) return ops::copy_to_device(to, from, slot.bytes(here.count));
    std::vector<bfloat16> rounded(here.count);
    for (size_t i = 0; i < here.count; i++) rounded[i] = bfloat16(float(from[i]));
    ops::copy_to_device(to, rounded.data(), slot.bytes(here.count));
}

static void restore_slot(Shards& shards, const Tensor& t, const StateSource& from, const StateSlot& slot) {
    read_share(shards, t, shards.home_of(t.bucket, slot), from, slot.name,
               [&](Interval e, const real* values) { put_state(shards, slot, t.bucket, e, values); });
}

// Masters that are not rounded yet, or are not there, lie within the weights: one read sets both.
static void restore_weights(Shards& shards, const Tensor& t, const StateSource& from) {
    const bool has_masters = !from.has || from.has(t, "master");
    const bool has_weights = from.has && from.has(t, "weights");
    const bool rounded = has_weights && (!kMasterIsParam || !has_masters), both = !rounded || !has_masters;
    const StateSlot* const masters = shards.masters();
    read_share(shards, t, shards.home_of(t.bucket, Kept::Weights), from, rounded ? "weights" : "master",
               [&](Interval e, const real* values) {
        put_weights(shards, t.bucket, e, values);
        if (masters && both) put_state(shards, *masters, t.bucket, e, values);
    });
    if (masters && !both) restore_slot(shards, t, from, *masters);
    shards.weights_changed();
}

void restore(Shards& shards, const StateSource& from, bool moments) {
    for (const Tensor& t : shards.layout.tensors) {
        restore_weights(shards, t, from);
        for (const StateSlot& slot : shards.state)
            if (moments && slot.memory && !slot.weights && slot.has(t)) restore_slot(shards, t, from, slot);
    }
}

void load_weights(Shards& shards, const std::string& init) {
    const Axis& world = shards.mesh.world;
    phase(Phase::Load, 0);
    if (!is_foreign(init)) {
        const Origin origin = open_checkpoint(init, world);
        return restore(shards, checkpoint_state(origin.folder, origin.manifest));
    }
    const ForeignModel foreign = open_foreign(init);
    if (world.index == 0) check_head(foreign, shards.layout.tensors.front());
    restore(shards, foreign_weights(foreign));
}

void set_tensor(Shards& shards, const Tensor& whole, const std::vector<real>& values) {
    const Tensor* const here = shards.tensor_here(whole.name);
    if (here)
        restore_weights(shards, *here, {[&](const Tensor& t, const char*, const Piece& some, real* out) {
            cut_out(&values[some.row * size_t(t.param.whole_cols)], t, some, out);
        }});
}

}  // namespace PRECISION::saves
