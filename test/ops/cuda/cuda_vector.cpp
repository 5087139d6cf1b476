// The plain vector operations, and bias gradients.
#include <memory>
#include <utility>

#include "test/cuda.h"

namespace PRECISION {

static const size_t kCounts[] = {1, 7, 8, 1001, 4096};

TEST(vector_operations_match_the_cpu) {
    for (const size_t count : kCounts) {
        const auto in = normals<real>(count, 1);
        const OnDevice dev_in(in);
        const OnDevice rounded(poisoned<floatX>(count));
        const OnDevice total(std::vector<double>{1});
        cuda::round_to(rounded, dev_in, count);
        cuda::sum_in_order(total, dev_in, count);
        double want = 1, size = 1;
        const auto got = rounded.host();
        for (size_t i = 0; i < count; i++) {
            want += double(in[i]), size += std::fabs(double(in[i]));
            EXPECT(double(got[i]) == double(floatX(in[i])), "%zu of %zu", i, count);
        }
        EXPECT_NEAR(total.host()[0], want, 1e-13 * size);
        cuda::set_zero(rounded, rounded.bytes() - sizeof(floatX));
        const auto cleared = rounded.host();
        for (size_t i = 0; i < count; i++)
            EXPECT(double(cleared[i]) == (i + 1 < count ? 0 : double(got[i])), "%zu", i);
    }
}

// Of 1 to 5 terms, the first of which is also the output; aligned, and not.
template <class Out, class In, class Sum, class Want>
static void check_sums(Sum sum, Want want) {
    for (const size_t count : kCounts)
        for (const int number : {1, 2, 5})
            for (const size_t offset : {0, 3}) {
                std::vector<std::unique_ptr<OnDevice<In>>> terms;
                std::vector<std::vector<In>> host;
                std::vector<const In*> device_at, host_at;
                for (int p = 0; p < number; p++) {
                    host.push_back(normals<In>(count + offset, uint64_t(10 + p)));
                    terms.push_back(std::make_unique<OnDevice<In>>(host.back()));
                    device_at.push_back(*terms.back() + offset);
                }
                for (const auto& v : host) host_at.push_back(v.data() + offset);
                const OnDevice out(poisoned<Out>(count + offset));
                std::vector<Out> wanted = out.host();
                sum(out.p + offset, device_at.data(), number, count);
                const Lent lent(1);
                want(wanted.data() + offset, host_at.data(), number, count);
                EXPECT(same_bits(out.host(), wanted), "%d terms of %zu from %zu", number, count, offset);
            }
}

// A slice of each of many ranks, one of which is elsewhere (-1: none).
template <class Out, class In, class Sum, class Want>
static void check_many(Sum sum, Want want) {
    for (const int number : {129, 300})
        for (const int own : {-1, 0, 1, 2, 77, number - 2, number - 1}) {
            const size_t count = 9, slice = 16;
            const std::vector<In> host = normals<In>(size_t(number) * slice, 1);
            const OnDevice<In> device(host), apart(host);
            std::vector<const In*> device_at, host_at;
            for (int p = 0; p < number; p++) {
                device_at.push_back((p == own ? apart : device) + size_t(p) * slice);
                host_at.push_back(host.data() + size_t(p) * slice);
            }
            const OnDevice out(poisoned<Out>(count));
            std::vector<Out> wanted = out.host();
            sum(out.p, device_at.data(), number, count);
            const Lent lent(1);
            want(wanted.data(), host_at.data(), number, count);
            EXPECT(same_bits(out.host(), wanted), "%d terms, own %d", number, own);
        }
}

TEST(sums_of_terms_are_the_cpus) {
    check_many<floatX, floatX>(cuda::sum_terms, cpu::sum_terms);
    check_many<real, real>(cuda::sum_rounded, cpu::sum_rounded);
    check_many<real, floatX>(cuda::sum_widened, cpu::sum_widened);
    check_sums<floatX, floatX>(cuda::sum_terms, cpu::sum_terms);
    check_sums<real, real>(cuda::sum_rounded, cpu::sum_rounded);
    check_sums<real, floatX>(cuda::sum_widened, cpu::sum_widened);
    for (const size_t count : kCounts) {
        std::vector<real> sum = normals<real>(count, 1);
        const std::vector<real> values = normals<real>(count, 2);
        const OnDevice dev_sum(sum), dev_values(values);
        cuda::accumulate(dev_sum, dev_values, count);
        for (size_t i = 0; i < count; i++) sum[i] += values[i];
        EXPECT(same_bits(dev_sum.host(), sum), "%zu values", count);
    }
    const OnDevice a(normals<floatX>(1001, 1)), b(poisoned<floatX>(1001));
    cuda::copy(b, a, 1001);
    EXPECT(same_bits(a.host(), b.host()));
}

TEST(rows_of_doubles_add_up_in_order) {
    const int rows = 5, cols = 3;
    std::vector<double> in(size_t(rows) * cols), want(cols);
    for (size_t i = 0; i < in.size(); i++) {
        in[i] = (i % 2 ? 1e16 : -1e16) / double(i + 1) + double(i);        // another order rounds otherwise
        want[i % cols] = i < size_t(cols) ? in[i] : want[i % cols] + in[i];
    }
    const OnDevice dev_in(in), out(std::vector<double>(cols, NAN));
    cuda::sum_rows(out, dev_in, rows, cols);
    EXPECT(same_bits(out.host(), want));
    EXPECT_FLOORS([&] { cuda::sum_rows(out, dev_in, rows, cols); });
}

// Groups of rows, columns of a block, and what is left over of each.
struct Shape { int N, OC; };
static const Shape kShapes[] = {{1, 8}, {3, 768}, {130, 40}, {700, 264}, {65, 1600}, {200, 64}};

static std::vector<real> column_sums(const Shape& s) {
    const CudaScratch lent;
    const OnDevice db(normals<real>(s.OC, 1));
    const OnDevice dout(normals<floatX>(size_t(s.N) * s.OC, 2));
    cuda::bias_backward(db, dout, s.N, s.OC);
    return db.host();
}

TEST(bias_gradients_match_the_cpu) {
    for (const Shape& s : kShapes) {
        Wide db = wide(normals<real>(s.OC, 1)), sums = absolute(db);
        const Wide dout = wide(normals<floatX>(size_t(s.N) * s.OC, 2));
        oracle::bias_backward(db.data(), dout.data(), s.N, s.OC);
        oracle::bias_backward(sums.data(), absolute(dout).data(), s.N, s.OC);
        EXPECT_CLOSE(column_sums(s), db, sums);
    }
}

TEST(order_changes_no_bit) {
    const auto first = column_sums({700, 264});
    const auto values = normals<real>(5000, 1);
    const OnDevice in(values);
    const auto sum = [&] {
        const OnDevice total(std::vector<double>{1});
        cuda::sum_in_order(total, in, values.size());
        return total.host();
    };
    const auto first_sum = sum();
    in_every_order([&] { EXPECT(same_bits(column_sums({700, 264}), first) && same_bits(sum(), first_sum)); });
}

// A stride that is no multiple of a pack's elements: element by element.
struct RowSizes { int width, stride; };
static constexpr RowSizes kRowSizes[] = {{48, 112}, {12, 16}, {16, 19}, {5, 5}};

static std::vector<floatX> joined(int before, const RowSizes& sizes = kRowSizes[0]) {
    const auto [width, stride] = sizes;
    const int B = 5, T = 3;
    const OnDevice kept(normals<floatX>(3 * 7 * width, 1)), own(normals<floatX>(B * T * stride, 2));
    const OnDevice from(std::vector<int32_t>{2, 0, 2, 1, 1});
    const OnDevice out(poisoned<floatX>(size_t(B * (before + T) * width)));
    cuda::join_rows(out, {.kept = kept, .from = from, .own = own, .stride = size_t(stride), .B = B,
                          .before = before, .T = T, .width = width});
    return out.host();
}

struct Copied { int width, stride, out_stride; };
static constexpr Copied kCopied[] = {{48, 48, 48},  {48, 56, 64}, {48, 64, -56},
                                     {48, -56, 48}, {12, 13, 12}, {5, 5, -7}};
static constexpr int kCopiedRows = 5;

// Places of the first row, where rows go backwards as well.
static int first_of(int stride) { return stride < 0 ? 800 : 0; }

static std::vector<floatX> copied(const std::vector<floatX>& in, const Copied& c) {
    const OnDevice from(in), out(poisoned<floatX>(in.size()));
    cuda::copy_rows(out + first_of(c.out_stride),
                    {.from = from + first_of(c.stride), .stride = c.stride, .out_stride = c.out_stride,
                     .rows = kCopiedRows, .width = size_t(c.width)});
    return out.host();
}

TEST(rows_are_copied_at_any_stride) {
    const auto in = normals<floatX>(1000, 1);
    for (const Copied& c : kCopied) {
        auto want = poisoned<floatX>(in.size());
        for (int i = 0; i < kCopiedRows * c.width; i++)
            want[size_t(first_of(c.out_stride) + i / c.width * c.out_stride + i % c.width)] =
                in[size_t(first_of(c.stride) + i / c.width * c.stride + i % c.width)];
        in_every_order([&] {
            EXPECT(same_bits(copied(in, c), want), "%d wide, %d to %d apart", c.width, c.stride,
                   c.out_stride);
        });
    }
}

TEST(sums_of_two_are_rounded_once) {
    const auto a = normals<floatX>(1003, 1), b = normals<floatX>(1003, 2);
    const OnDevice sum(a), values(b);
    cuda::add(sum, values, a.size());
    const auto got = sum.host();
    for (size_t i = 0; i < got.size(); i++)
        EXPECT(float(got[i]) == float(floatX(float(a[i]) + float(b[i]))), "%zu", i);
}

TEST(rows_are_joined_behind_those_they_share) {
    const int B = 5, T = 3, of[] = {2, 0, 2, 1, 1};
    for (const RowSizes& sizes : kRowSizes)
        for (const int before : {0, 7}) {
            const auto [width, stride] = sizes;
            const auto kept = normals<floatX>(3 * 7 * width, 1), own = normals<floatX>(B * T * stride, 2);
            std::vector<floatX> want;
            for (int b = 0; b < B; b++) {
                const auto first = kept.begin() + of[b] * before * width;
                want.insert(want.end(), first, first + before * width);
                for (int t = 0; t < T; t++) {
                    const auto row = own.begin() + (b * T + t) * stride;
                    want.insert(want.end(), row, row + width);
                }
            }
            in_every_order([&] {
                EXPECT(same_bits(joined(before, sizes), want), "%d wide, behind %d rows", width, before);
            });
        }
}

// A slice of each of more ranks than a kernel's arguments have room for.
template <class T> static std::vector<const T*> slices_of(const OnDevice<T>& all, int number, size_t count) {
    std::vector<const T*> at;
    for (int p = 0; p < number; p++) at.push_back(all + size_t(p) * count);
    return at;
}

TEST(moves_no_more_than_its_floor) {
    const size_t count = 9000;
    const OnDevice a(normals<floatX>(count, 1)), b(normals<floatX>(count, 2));
    const OnDevice in(normals<real>(count, 3));
    const OnDevice total(std::vector<double>{1});
    EXPECT_FLOORS([&] {
        cuda::round_to(a, in, count), cuda::sum_in_order(total, in, count);
        const floatX* const three[] = {a, b, a};
        const real* const two[] = {in, in};
        cuda::sum_terms(a, three, 3, count), cuda::sum_rounded(in, two, 2, count);
        cuda::sum_widened(in, three, 3, count), cuda::accumulate(in, in, count);
        column_sums({300, 768});
    });
    const int many = 129;
    const size_t each = 1024;
    const OnDevice<floatX> all(normals<floatX>(many * each, 4));
    const OnDevice<real> wide(normals<real>(many * each, 5));
    EXPECT_FLOORS([&] {
        const auto terms = slices_of(all, many, each);
        const auto wide_terms = slices_of(wide, many, each);
        cuda::sum_terms(a, terms.data(), many, each), cuda::sum_widened(in, terms.data(), many, each);
        cuda::sum_rounded(in, wide_terms.data(), many, each);
    });
    EXPECT_FLOORS([] { joined(0), joined(7), joined(7, {12, 16}), joined(7, {16, 19}); });
    EXPECT_FLOORS([] { for (const Copied& c : kCopied) copied(normals<floatX>(1000, 1), c); });
}

}  // namespace PRECISION
