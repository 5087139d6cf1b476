// A model of another program: opened, and every tensor read.
#pragma once
#include <string>
#include <vector>

#include "llmc/train/save/formats/formats.h"
#include "test/fuzz/fuzz.h"

inline void open_and_read(const std::string& from) {
    const ForeignModel m = open_foreign(from);
    const std::vector<Tensor> tensors = whole_tensors(make_dims(m.shape));
    for (const Tensor& t : tensors)
        for_each_slice(t, [&](size_t row, size_t rows) {
            std::vector<float> values(rows * size_t(t.param.whole_cols));
            m.read(t, row, rows, values.data());
        });
    (void)head_is_embedding(m, tensors.front());
}
