// The plain vector operations, and bias gradients.
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "test/cuda.h"

#include "llmc/base/guard/progress_page.h"
#include "llmc/base/progress.h"
#include "llmc/ops/cuda/waiting.h"

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

// Of 1 to 5 pieces, the first of which is also the output; aligned, and not.
template <class Out, class In, class Sum, class Want>
static void check_sums(Sum sum, Want want) {
    for (const size_t count : kCounts)
        for (const int parts : {1, 2, 5})
            for (const size_t offset : {0, 3}) {
                std::vector<std::unique_ptr<OnDevice<In>>> pieces;
                std::vector<std::vector<In>> host;
                std::vector<const In*> device_at, host_at;
                for (int p = 0; p < parts; p++) {
                    host.push_back(normals<In>(count + offset, uint64_t(10 + p)));
                    pieces.push_back(std::make_unique<OnDevice<In>>(host.back()));
                    device_at.push_back(*pieces.back() + offset);
                }
                for (const auto& v : host) host_at.push_back(v.data() + offset);
                const OnDevice out(poisoned<Out>(count + offset));
                std::vector<Out> wanted = out.host();
                sum(out.p + offset, device_at.data(), parts, count);
                const Lent lent(1);
                want(wanted.data() + offset, host_at.data(), parts, count);
                EXPECT(same_bits(out.host(), wanted), "%d pieces of %zu from %zu", parts, count, offset);
            }
}

TEST(sums_of_pieces_are_the_cpus) {
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

// What lies before a mark is the host's to wait for when it likes; finish_copies() waits for the rest only.
TEST(copies_up_to_a_mark_are_there_when_awaited) {
    const auto values = normals<real>(5000, 1);
    const OnDevice device(values);
    const size_t bytes = device.bytes();
    real* host = static_cast<real*>(cuda::host_allocate(2 * bytes));
    cuda::await_copies(1);                                                  // never set: nothing to wait for
    cuda::start_copy(host, device, bytes);
    cuda::mark_copies(0);
    cuda::start_copy(host + 5000, device, bytes);
    cuda::mark_copies(1);
    cuda::finish_copies();
    cuda::accumulate(device, device, 5000);                                 // waits for both copies
    cuda::await_copies(0);
    EXPECT(memcmp(host, values.data(), bytes) == 0);
    cuda::await_copies(1);
    EXPECT(memcmp(host + 5000, values.data(), bytes) == 0);
    EXPECT(device.host()[4999] == 2 * values[4999]);
    cuda::host_free(host, 2 * bytes);
}

// The time of a step is the device's, however late the host reads the step's statistics.
TEST(a_mark_says_when_its_copies_arrived) {
    const auto values = normals<real>(5000, 1);
    const OnDevice device(values);
    real* host = static_cast<real*>(cuda::host_allocate(device.bytes()));
    double arrived = 0;
    const double before = seconds_now();
    cuda::start_copy(host, device, device.bytes());
    cuda::mark_copies(0, &arrived);
    cuda::await_copies(0);
    EXPECT(arrived >= before && arrived <= seconds_now());

    cuda::start_copy(host, device, device.bytes());
    cuda::mark_copies(0, &arrived);
    CUDA_CHECK(cudaDeviceSynchronize());
    const double complete = seconds_now();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    cuda::await_copies(0);
    EXPECT(arrived <= complete, "%g s after the copies were complete", arrived - complete);
    cuda::host_free(host, device.bytes());
}

TEST(copies_between_host_and_device) {
    const auto values = normals<real>(5000, 1);
    const OnDevice device(values), other(poisoned<real>(5000));
    const size_t bytes = device.bytes();
    real* host = static_cast<real*>(cuda::host_allocate(2 * bytes));
    EXPECT(cuda::on_device(device) && cuda::on_device(device + 4999) && !cuda::on_device(host) &&
           !cuda::on_device(values.data()));
    EXPECT(host[0] == 0 && host[9999] == 0);
    cuda::copy_to_device(host + 5000, values.data(), bytes);               // what is offloaded
    EXPECT(memcmp(host + 5000, values.data(), bytes) == 0);
    cuda::accumulate(device, device, 5000);                                // the copy waits for it
    cuda::start_copy(host, device, bytes);
    cuda::start_copy(other, device, bytes);
    cuda::finish_copies();
    for (size_t i = 0; i < 5000; i++) EXPECT(host[i] == 2 * values[i], "%zu", i);
    cuda::start_copy(device, host + 5000, bytes);
    cuda::finish_copies();
    cuda::accumulate(other, device, 5000);                                 // waits for the copy
    const auto got = other.host();
    for (size_t i = 0; i < 5000; i++) EXPECT(got[i] == 2 * values[i] + values[i], "%zu", i);
    std::vector<real> back(5000);
    cuda::copy_to_host(back.data(), host + 5000, bytes);
    EXPECT(same_bits(back, values));
    cuda::synchronize();
    cuda::host_free(host, 2 * bytes);
    EXPECT(cuda::device_available() > 0 && !cuda::device_name().empty() && !cuda::reached_by_host());
}

// Memory of the host is pinned a piece at a time, each with a heartbeat, and copied so.
TEST(a_rank_that_pins_memory_is_alive) {
    CudaDevice& device = cuda_device();
    const size_t before = std::exchange(device.pinned_at_once, size_t(64) << 10), count = 100000;
    RankProgress progress = {};
    context.progress = &progress;
    const size_t bytes = count * sizeof(real);
    real* const host = static_cast<real*>(cuda::host_allocate(bytes));
    EXPECT(progress.beats == 7 && host[0] == 0 && host[count - 1] == 0, "%d beats", int(progress.beats));
    const OnDevice values(normals<real>(count, 1)), back(poisoned<real>(count));
#ifdef CUDA_EMU
    EXPECT(cudaMemcpyAsync(host, values, bytes, cudaMemcpyDefault, device.compute) != cudaSuccess, "at once");
    cudaGetLastError();
#endif
    cuda::start_copy(host, values, bytes);
    cuda::finish_copies();
    EXPECT(memcmp(host, values.host().data(), bytes) == 0);
    cuda::copy_to_device(back.p + 1, host + 1, bytes - sizeof(real));
    EXPECT(memcmp(back.host().data() + 1, host + 1, bytes - sizeof(real)) == 0);
    cuda::copy_to_host(host, back, bytes);
    EXPECT(memcmp(host + 1, values.host().data() + 1, bytes - sizeof(real)) == 0);
    cuda::host_free(host, bytes);
    EXPECT(progress.beats == 14, "%d beats", int(progress.beats));
    context.progress = nullptr;
    device.pinned_at_once = before;
}

TEST(memory_in_use_is_known) {
    constexpr size_t bytes = 32 << 20;          // of a GPU's pages, of 2 MB
    const size_t before = cuda::device_in_use();
    void* p = cuda::device_allocate(bytes);
    const size_t held = cuda::device_in_use();
    cuda::device_free(p, bytes);
    EXPECT(held == before + bytes && cuda::device_in_use() == before, "%zu, then %zu, then %zu", before, held,
           cuda::device_in_use());
}

TEST(what_is_known_of_a_device) {
    EXPECT(!cuda::device_bus_id().empty());
    cuda::warm_up(Walk(cuda::target()));
#ifdef CUDA_EMU
    const emulator::Settings before = emulator::settings;
    EXPECT(cuda::device_tflops() == 0, "a CPU emulates it");
    emulator::settings.name = "NVIDIA H100 80GB HBM3";
    EXPECT((cuda::device_tflops() > 900) == (sizeof(floatX) == 2), "%g", cuda::device_tflops());
    emulator::settings = before;
#endif
}

TEST(the_host_looks_around_while_it_waits) {
    static int looks;
    const auto values = normals<real>(5000, 1);
    const OnDevice device(values);
    real* host = static_cast<real*>(cuda::host_allocate(device.bytes()));
    while_host_waits = [] { looks++; };
    cuda::accumulate(device, device, 5000);
    cuda::synchronize();
    EXPECT(looks >= 2, "for copies and for ops: %d times", looks);
    const int before = looks;
    cuda::start_copy(host, device, device.bytes());
    cuda::mark_copies(2);
    cuda::await_copies(2);
    EXPECT(looks > before && host[4999] == 2 * values[4999]);
    while_host_waits = nullptr;
    cuda::host_free(host, device.bytes());
}

// Parts, columns of a block, and what is left over of each.
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
    EXPECT_FLOORS([] { joined(0), joined(7), joined(7, {12, 16}), joined(7, {16, 19}); });
}

}  // namespace PRECISION
