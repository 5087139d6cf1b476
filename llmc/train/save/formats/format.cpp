#include "llmc/train/save/formats/format.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "llmc/base/check.h"

inline namespace formats {

size_t row_there(Rows order, size_t row, size_t D) {
    const size_t head = row / D * D, channel = row % D;
    if (order == Rows::Swapped) return head + (channel + D / 2) % D;
    if (order == Rows::Pairs) return head + channel % (D / 2) * 2 + channel / (D / 2);
    return row;
}

std::vector<ForeignTensor> foreign_tensors(std::span<const TensorName> names, const char* blocks,
                                           const Tensor& t) {
    const std::string before = t.layer < 0 ? "" : blocks + std::to_string(t.layer) + ".";
    std::vector<ForeignTensor> tensors;
    for (const TensorName& name : names)
        if (!strcmp(name.own, t.param.name))
            tensors.push_back({.name = before + name.theirs, .first = 0, .rows = size_t(t.param.whole_rows),
                               .order = name.order});
    if (tensors.size() <= 1) return tensors;
    size_t first = 0;
    for (size_t m = 0; m < tensors.size(); m++) {
        tensors[m].first = first;
        tensors[m].rows = size_t(t.param.fused[m]) * size_t(t.param.tp);
        first += tensors[m].rows;
    }
    return tensors;
}

void read_foreign_rows(const std::vector<ForeignTensor>& tensors, const Tensor& t, size_t D, size_t row,
                       size_t rows, float* out, const ReadForeign& read) {
    const size_t cols = size_t(t.param.whole_cols);
    for (const ForeignTensor& p : tensors) {
        Interval rest = common({row, rows}, {p.first, p.rows});
        while (!rest.empty()) {
            const auto [at, n] = rest.take(p.order == Rows::Same ? rest.count : 1);
            read(p, row_there(p.order, at - p.first, D), n, out + (at - row) * cols);
        }
    }
}

std::vector<float> foreign_values(const ForeignTensor& p, size_t cols, size_t D,
                                  const std::vector<float>& all) {
    std::vector<float> values(p.rows * cols);
    for (size_t row = 0; row < p.rows; row++) {
        const float* from = &all[(p.first + row) * cols];
        std::copy(from, from + cols, &values[row_there(p.order, row, D) * cols]);
    }
    return values;
}

bool head_is_embedding(const ForeignModel& m, const Tensor& wte) {
    if (!m.head) return true;
    bool same = true;
    std::vector<float> head, embedding;
    for_each_slice(wte, [&](size_t row, size_t rows) {
        if (!same) return;
        head.resize(rows * size_t(wte.param.whole_cols));
        embedding.resize(head.size());
        m.head(row, rows, head.data());
        m.read(wte, row, rows, embedding.data());
        same = head == embedding;
    });
    return same;
}

void remove_file(const std::string& path) {
    CHECK_INPUT(unlink(path.c_str()) == 0 || errno == ENOENT, "{}: cannot be removed: {}", path,
                strerror(errno));
}

}  // namespace formats
