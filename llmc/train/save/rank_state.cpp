#include "llmc/train/save/rank_state.h"

#include <cstring>
#include <map>

#include "llmc/base/check.h"
#include "llmc/base/files.h"
#include "llmc/base/guard/wait.h"
#include "llmc/io/files/safetensors.h"
#include "llmc/train/save/formats/format.h"

namespace PRECISION {

// ---------------------------------------------------------------------------------------------------------
// what there is

namespace {

struct StateArray {
    const char *name, *dtype;
    size_t element;
    std::byte* memory;
    const StateSlot* slot = nullptr;       // null: lies as the weights do
};

template <class T> StateArray array_of(const char* name, T* memory) {
    return {name, name_of(dtype_of<T>), sizeof(T), reinterpret_cast<std::byte*>(memory)};
}

std::vector<StateArray> arrays_of(const Zero& zero) {
    std::vector<StateArray> arrays;
    arrays.push_back(array_of(kMasterIsParam ? "master" : "weights", zero.params));
    for (const StateSlot& slot : zero.state) {      // at step 0 every slot but the masters is zero
        if (!zero.trains && !slot.weights) continue;
        arrays.push_back(array_of(slot.name, slot.memory));
        arrays.back().slot = &slot;
    }
    return arrays;
}

Home home_of(const Zero& zero, const StateArray& array, int bucket) {
    return array.slot ? zero.home_of(bucket, *array.slot) : zero.home_of(bucket, Kept::Weights);
}

std::vector<int64_t> saved_shape(const Param& p) {
    if (p.whole_cols == 1) return {p.whole_rows};
    return {p.whole_rows, p.whole_cols};
}

}  // namespace

RankShare share_to_save(const Zero& zero) {
    RankShare share;
    for (const StateArray& array : arrays_of(zero))
        for (const Tensor& t : zero.layout.tensors) {
            if (array.slot && !array.slot->has(t)) continue;
            const Home home = home_of(zero, array, t.bucket);
            const size_t start = zero.layout.in_bucket(t).begin;
            for (const Piece& p : pieces_of(t, zero.owned(t, Zero::Replicas::Each))) {
                SavedPiece s{.tensor = t.name, .array = array.name, .dtype = array.dtype,
                             .shape = saved_shape(t.param), .start = {int64_t(p.row)},
                             .extent = {int64_t(p.rows)}, .file = {}};
                if (t.param.whole_cols > 1) {
                    s.start.push_back(int64_t(p.col));
                    s.extent.push_back(int64_t(p.cols));
                }
                share.bytes += s.bytes();
                if (home.on_host) share.offloaded += s.bytes();
                share.pieces.push_back(std::move(s));
                if (!home.on_host) share.first_offloaded = share.pieces.size();
                share.start.push_back(home.place(start + p.at));
            }
        }
    return share;
}

std::vector<std::span<const std::byte>> RankShare::data(const Zero& zero) const {
    std::map<std::string, StateArray> arrays;
    for (const StateArray& a : arrays_of(zero)) arrays.emplace(a.name, a);
    std::vector<std::span<const std::byte>> spans;
    for (size_t i = 0; i < pieces.size(); i++) {
        const StateArray& a = arrays.at(pieces[i].array);
        spans.emplace_back(a.memory + start[i] * a.element, size_t(pieces[i].bytes()));
    }
    return spans;
}

// ---------------------------------------------------------------------------------------------------------
// reading

namespace {

// Bytes of a buffer. Plans count no memory for loading: a few of these fit beside what a save needs.
constexpr size_t kBuffer = 64 << 10;

struct StateReader {
    const std::string& folder;
    std::map<std::pair<std::string, std::string>, std::vector<const SavedPiece*>> index;
    std::map<std::string, Fd> files;
    std::vector<std::byte> buffer;

    StateReader(const std::string& folder, const Manifest& m) : folder(folder) {
        for (const SavedPiece& p : m.pieces) index[{p.tensor, p.array}].push_back(&p);
    }

    const std::vector<const SavedPiece*>* find(const Tensor& t, const char* array_name) const {
        const auto found = index.find({t.name, array_name});
        return found == index.end() ? nullptr : &found->second;
    }
    const std::vector<const SavedPiece*>& require(const Tensor& t, const char* array_name) const {
        const auto* pieces = find(t, array_name);
        CHECK_INPUT(pieces, "{}: there is no {} of '{}': it is of another model", folder, array_name,
                    t.name);
        std::vector<int64_t> shape = saved_shape(t.param), saved = (*pieces)[0]->shape;
        if (t.name == "wpe" && saved.size() == 2 && saved[0] > shape[0]) saved[0] = shape[0];
        CHECK_INPUT(saved == shape, "{}: '{}' has {} rows of {}, expected {} of {}", folder,
                    t.name, saved[0], saved.back(), shape[0], shape.back());
        return *pieces;
    }

    // Rows of a saved piece, with every column, in the saved format.
    const std::byte* rows(const SavedPiece& p, size_t first, size_t count, size_t row_bytes) {
        beat();
        Fd& fd = files[p.file];
        const std::string path = folder + "/" + p.file;
        if (!fd) fd = open_read(path);
        buffer.resize(count * row_bytes);
        const Waiting named("a wait for the disk", Awaits::Own);
        pread_all(fd.fd, buffer.data(), buffer.size(), p.at + first * row_bytes, path);
        return buffer.data();
    }

    // A rectangle of a tensor, from every overlapping piece.
    template <class T> void read(const Tensor& t, const char* array_name, const Piece& to, T* out) {
        for (const SavedPiece* p : require(t, array_name)) {
            const size_t row = size_t(p->start[0]), rows_there = size_t(p->extent[0]);
            const size_t col = p->start.size() > 1 ? size_t(p->start[1]) : 0;
            const size_t cols = p->extent.size() > 1 ? size_t(p->extent[1]) : 1;
            Interval shared_rows = common({row, rows_there}, {to.row, to.rows});
            const Interval shared = common({col, cols}, {to.col, to.cols});         // columns
            if (shared.empty()) continue;
            const size_t element = safetensors_dtype_bytes(p->dtype), row_bytes = cols * element;
            while (!shared_rows.empty()) {
                const auto [r, n] = shared_rows.take(std::max<size_t>(1, kBuffer / row_bytes));
                const std::byte* from = rows(*p, r - row, n, row_bytes);
                for (size_t i = 0; i < n; i++)
                    convert(*p, from + i * row_bytes + (shared.begin - col) * element, shared.count,
                            out + (r + i - to.row) * to.cols + (shared.begin - to.col));
            }
        }
    }
    template <class T> void convert(const SavedPiece& p, const std::byte* from, size_t count, T* out) {
        if (p.dtype == name_of(dtype_of<T>)) memcpy(out, from, count * sizeof(T));
        else if (p.dtype == "F32") convert_from<float>(from, count, out);
        else if (p.dtype == "F64") convert_from<double>(from, count, out);
        else if (p.dtype == "BF16") convert_from<bfloat16>(from, count, out);
        else CHECK_INPUT(false, "{}: '{}' is {}, expected F32, F64 or BF16", folder, p.tensor,
                         p.dtype);
    }
    template <class S, class T> void convert_from(const std::byte* from, size_t count, T* out) {
        for (size_t i = 0; i < count; i++) {
            S v;
            memcpy(&v, from + i * sizeof v, sizeof v);
            out[i] = T(real(v));
        }
    }

    // The elements of a tensor that lie here. in_bucket: of all its elements. The array may be on the device:
    // a few rows at a time.
    template <class T>
    void read(const Tensor& t, Interval in_bucket, const char* array_name, const Home& home, T* array) {
        std::vector<T> values;
        const std::string_view name = array_name;
        const bool of_weights = name == "weights" || name == "master";
        for (const Piece& p : pieces_of(t, common(in_bucket, home.elements).from(in_bucket.begin)))
            for (Interval rest{0, p.rows}; !rest.empty();) {
                const auto [r, rows] = rest.take(std::max<size_t>(1, kBuffer / sizeof(T) / p.cols));
                const Piece some{.row = p.row + r, .col = p.col, .rows = rows, .cols = p.cols,
                                 .at = p.at + r * p.cols};
                values.resize(some.count());
                read(t, array_name, some, values.data());
                if (of_weights) check_finite(std::span<const T>(values), folder, t.name);
                ops::copy_to_device(array + home.place(in_bucket.begin + some.at), values.data(),
                                    some.count() * sizeof(T));
            }
    }
};

}  // namespace

void load_state(Zero& zero, const std::string& folder, const Manifest& m, bool moments) {
    StateReader in(folder, m);
    for (const Tensor& t : zero.layout.tensors) {
        const Interval in_bucket = zero.layout.in_bucket(t);
        const char* const from = !kMasterIsParam && in.find(t, "weights") ? "weights" : "master";
        in.read(t, in_bucket, from, zero.home_of(t.bucket, Kept::Weights), zero.params);
        for (const StateSlot& slot : zero.state)
            if (slot.memory && slot.has(t) && (slot.weights || moments))
                in.read(t, in_bucket, slot.name, zero.home_of(t.bucket, slot), slot.memory);
    }
    zero.weights_changed();
}

}  // namespace PRECISION
