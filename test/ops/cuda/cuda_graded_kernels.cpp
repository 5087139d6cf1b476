// The graded kernels of dev/cuda: each equals the CPU's op in any order of threads, and in the emulation each
// improves on the previous version as its comment says.
#include "dev/cuda/graded.h"


#include "test/cuda.h"

namespace bf16 {

using graded::layernorm_versions, graded::matmul_versions;

struct Norm {
    int N, C;
    std::vector<bfloat16> x = normals<bfloat16>(size_t(N) * C, 1, 1, 0.5), w = normals<bfloat16>(C, 2),
                          b = normals<bfloat16>(C, 3);
    Wide exact() const {
        Wide y(x.size()), mean(N), rstd(N), wx = wide(x), ww = wide(w), wb = wide(b);
        oracle::layernorm_forward({.x1 = nullptr, .y = y.data(), .mean = mean.data(), .rstd = rstd.data(),
                                   .x = wx.data(), .r = nullptr, .bias = nullptr, .w = ww.data(),
                                   .b = wb.data()}, N, C);
        return y;
    }
    std::vector<bfloat16> run(const graded::Version<graded::Rows>& v) const {
        const OnDevice dx(x), dw(w), db(b), y(poisoned<bfloat16>(x.size()));
        v.run({y, dx, dw, db, N, C});
        return y.host();
    }
};

struct Product {
    int N, C, OC;
    std::vector<bfloat16> x = normals<bfloat16>(size_t(N) * C, 1), w = normals<bfloat16>(size_t(OC) * C, 2),
                          b = normals<bfloat16>(OC, 3);
    Wide exact() const {
        Wide out(size_t(N) * OC), wx = wide(x), ww = wide(w), wb = wide(b);
        const OracleScratch lent;
        oracle::matmul_forward(out.data(), wx.data(), ww.data(), wb.data(), N, C, OC);
        return out;
    }
    std::vector<bfloat16> run(const graded::Version<graded::Matrices>& v) const {
        const OnDevice dx(x), dw(w), db(b), out(poisoned<bfloat16>(size_t(N) * OC));
        v.run({out, dx, dw, db, N, C, OC});
        return out.host();
    }
};

TEST(every_version_is_right) {
    for (const Norm& n : {Norm{1, 256}, Norm{13, 512}}) {
        const Wide want = n.exact();
        for (const auto& v : layernorm_versions()) EXPECT_CLOSE(n.run(v), want, absolute(want));
    }
    for (const Product& p : {Product{128, 32, 128}, Product{128, 160, 256}}) {
        const Wide want = p.exact();
        for (const auto& v : matmul_versions()) EXPECT_CLOSE(p.run(v), want, absolute(want));
    }
}

TEST(order_changes_no_bit) {
    const Norm n = {9, 256};
    const Product p = {128, 64, 128};
    for (const auto& v : layernorm_versions()) {
        const auto first = n.run(v);
        in_every_order([&] { EXPECT(same_bits(n.run(v), first), "%s", v.idea); });
    }
    for (const auto& v : matmul_versions().subspan(3)) {
        const auto first = p.run(v);
        in_every_order([&] { EXPECT(same_bits(p.run(v), first), "%s", v.idea); });
    }
}

#ifdef CUDA_EMU
struct Counted { double bytes, sectors, conflicts; bool tensor_cores; };
template <class F> static Counted counted(F f) {
    emulator::settings.count = true;
    emulator::reset_counts();
    f();
    emulator::settings.count = false;
    const auto counts = emulator::counts();
    EXPECT(counts.size() == 1, "%zu kernels", counts.size());
    const emulator::KernelCount c = counts.begin()->second;
    EXPECT(double(c.mma_flops) == c.floor_flops, "%s", counts.begin()->first.c_str());
    return {double(c.bytes) / c.floor_bytes, 32 * double(c.sectors) / c.floor_bytes,
            c.shared_ideal ? double(c.shared_waves) / double(c.shared_ideal) : 1, c.mma_flops > 0};
}

// What a kernel loads and stores by itself is counted by the checks.
static bool uncounted() {
    if (!emulator::checks_compiled_in) test::skip("built without -fsanitize=thread,alignment");
    return !emulator::checks_compiled_in;
}

TEST(layernorms_get_better_as_they_say) {
    if (uncounted()) return;
    const Norm n = {64, 256};
    std::vector<Counted> c;
    for (const auto& v : layernorm_versions()) c.push_back(counted([&] { n.run(v); }));
    EXPECT(c.size() == 4);
    EXPECT(c[0].sectors > 16 * c[0].bytes / 2, "2 bytes of each sector: %g of %g", c[0].sectors, c[0].bytes);
    for (const size_t i : {1, 2})       // whole sectors, but the row three times, w and b with every row
        EXPECT(c[i].sectors < 1.01 * c[i].bytes && c[i].bytes > 2, "%zu: %g %g", i, c[i].sectors, c[i].bytes);
    EXPECT(c[3].bytes <= 1.01 && c[3].sectors <= 1.01 && c[3].conflicts == 1, "%g %g %g", c[3].bytes,
           c[3].sectors, c[3].conflicts);
}

TEST(matmuls_get_better_as_they_say) {
    if (uncounted()) return;
    const Product p = {128, 64, 128};
    std::vector<Counted> c;
    for (const auto& v : matmul_versions()) c.push_back(counted([&] { p.run(v); }));
    EXPECT(c.size() == 6);
    EXPECT(c[0].sectors > 10 * c[1].sectors, "%g and %g", c[0].sectors, c[1].sectors);
    EXPECT(c[1].conflicts > 5 && c[2].conflicts < 1.01, "%g and %g", c[1].conflicts, c[2].conflicts);
    EXPECT(c[1].sectors == c[2].sectors);
    for (const size_t i : {3, 4, 5})
        EXPECT(c[i].bytes < c[i - 1].bytes * 1.01, "%zu: %g after %g", i, c[i].bytes, c[i - 1].bytes);
    EXPECT(c[5].bytes <= 1.01, "tiles of 128 read these matrices once: %g", c[5].bytes);
    for (size_t i = 0; i < 6; i++) EXPECT(c[i].tensor_cores == (i >= 4), "%zu", i);
    EXPECT(c[5].conflicts == 1 && c[4].conflicts < 1.5, "%g and %g", c[5].conflicts, c[4].conflicts);
}

// The table of README.md is what this prints.
TEST(the_table_is_as_measured) {
    if (uncounted()) return;
    const test::Ran ran = test::run(test::build_folder() + "/dev/cuda_graded");
    EXPECT(ran.code == 0, "%s%s", ran.out.c_str(), ran.err.c_str());
    const std::string readme = test::run("cat dev/cuda/README.md").out;
    size_t rows = 0;
    for (size_t at = 0, end; at < ran.out.size(); at = end + 1) {
        end = std::min(ran.out.find('\n', at), ran.out.size());
        const std::string line = ran.out.substr(at, end - at);
        if (!line.starts_with("| ") || line.starts_with("| |")) continue;
        rows++;
        EXPECT(readme.find(line + "\n") != std::string::npos, "README.md does not have: %s", line.c_str());
    }
    EXPECT(rows == 10, "%zu rows", rows);
}
#endif

}  // namespace bf16
