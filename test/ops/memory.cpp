#include "test/compare.h"

namespace PRECISION {

TEST(allocated_memory_is_zero_and_aligned) {
    const Lent lent(2);
    for (const size_t bytes : {size_t(1), size_t(4096), size_t(5 << 20)}) {
        auto* p = static_cast<unsigned char*>(cpu::device_allocate(bytes));
        EXPECT((reinterpret_cast<uintptr_t>(p) & 4095) == 0);
        size_t set = 0;
        for (size_t i = 0; i < bytes; i++) set += p[i] != 0;
        EXPECT(set == 0);
        memset(p, 1, bytes);
        cpu::set_zero(p, bytes - bytes / 3);
        for (size_t i = 0; i < bytes; i += 1 + bytes / 1000)
            EXPECT(p[i] == (i >= bytes - bytes / 3), "byte %zu of %zu", i, bytes);
        cpu::device_free(p, bytes);
    }
}

TEST(too_much_memory_is_said_and_not_killed_for) {
    const Fatal f = test::fatal_of([] { cpu::device_allocate(size_t(1) << 46); });
    const std::string what = f.what();
    EXPECT(f.code == kExitConfig, "%d", f.code);
    for (const char* word : {"70.4 TB needed", "available", "micro_batch"})
        EXPECT(what.find(word) != std::string::npos, "'%s' in: %s", word, what.c_str());
}

TEST(vector_operations) {
    for (const int threads : {1, 3}) {
        const Lent lent(threads);
        const auto in = normals<real>(1001, 1);
        auto rounded = poisoned<floatX>(1001);
        cpu::round_to(rounded.data(), in.data(), in.size());
        double total = 1, want = 1;
        cpu::sum_in_order(&total, in.data(), in.size());
        for (size_t i = 0; i < in.size(); i++) {
            want += double(in[i]);
            EXPECT(double(rounded[i]) == double(floatX(in[i])), "%zu", i);
        }
        EXPECT(total == want);
    }
}

TEST(rows_are_copied_at_any_stride) {
    const int rows = 5, width = 6;
    const auto in = normals<floatX>(100, 1);
    for (const int threads : {1, 3})
        for (const auto& [stride, out_stride] : {std::pair{6, 6}, {9, 7}, {9, -8}, {-7, 6}}) {
            const Lent lent(threads);
            auto out = poisoned<floatX>(100);
            const floatX* const from = in.data() + (stride < 0 ? 90 : 0);
            floatX* const to = out.data() + (out_stride < 0 ? 90 : 0);
            cpu::copy_rows(to, {.from = from, .stride = stride, .out_stride = out_stride, .rows = rows,
                                .width = width});
            for (int i = 0; i < rows * width; i++) {
                const floatX got = to[i / width * out_stride + i % width];
                EXPECT(double(got) == double(from[i / width * stride + i % width]), "element %d", i);
            }
            const auto written = std::ranges::count_if(out, [](floatX x) { return !std::isnan(double(x)); });
            EXPECT(written == rows * width, "%d are written", int(written));
        }
}

TEST(sums_of_two_are_rounded_once) {
    const auto a = normals<floatX>(1001, 1), b = normals<floatX>(1001, 2);
    auto sum = a;
    cpu::add(sum.data(), b.data(), sum.size());
    for (size_t i = 0; i < sum.size(); i++)
        EXPECT(double(sum[i]) == double(floatX(real(a[i]) + real(b[i]))), "%zu", i);
}

TEST(rows_are_joined_behind_those_they_share) {
    for (const int threads : {1, 3})
        for (const int before : {0, 5}) {
            const Lent lent(threads);
            const int B = 4, T = 3, width = 6, stride = 10;
            const auto kept = normals<floatX>(3 * 5 * width, 1), own = normals<floatX>(B * T * stride, 2);
            const std::vector<int32_t> from = {2, 0, 2, 1};
            auto out = poisoned<floatX>(size_t(B * (before + T) * width));
            cpu::join_rows(out.data(), {.kept = kept.data(), .from = from.data(), .own = own.data(),
                                        .stride = stride, .B = B, .before = before, .T = T, .width = width});
            for (int i = 0; i < B * (before + T) * width; i++) {
                const int b = i / width / (before + T), t = i / width % (before + T), c = i % width;
                const floatX want = t < before ? kept[size_t((from[size_t(b)] * before + t) * width + c)]
                                               : own[size_t((b * T + t - before) * stride + c)];
                EXPECT(double(out[size_t(i)]) == double(want), "element %d", i);
            }
        }
}

}  // namespace PRECISION
