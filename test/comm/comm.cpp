// Every verb of an axis against its definition, over ranks on threads and ranks in processes.
#include <cmath>
#include <cstring>

#include "llmc/base/context.h"
#include "llmc/base/guard/launcher.h"
#include "llmc/comm/launch/launch.h"
#include "llmc/comm/transport/mpi.h"
#include "test/own_processes.h"
#include "test/ranks.h"
#include "test/tcp_ranks.h"

static constexpr size_t counts[] = {0, 1, 3, 7, 64, 1000, 5001, 20011};

// The value of rank r at place i, known to every rank.
template <class T> static T value(int r, size_t i) {
    uint64_t h = (i * 64 + uint64_t(r) + 1) * 0x9e3779b97f4a7c15;
    h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9;
    if constexpr (std::is_integral_v<T>) return T(h >> 32);
    else if constexpr (std::is_same_v<T, bfloat16>) return bfloat16(float(h >> 40) * 0x1p-23f - 1);
    else return T(double(h >> 11) * 0x1p-52 - 1);
}

template <class T> static std::vector<T> values(int r, size_t count) {
    std::vector<T> v(count);
    for (size_t i = 0; i < count; i++) v[i] = value<T>(r, i);
    return v;
}

// The sum over ranks, in their order: what decides the bits.
template <class T> static T ordered_sum(int ranks, size_t i, bool rounded) {
    if constexpr (std::is_integral_v<T>) {
        uint64_t s = 0;
        for (int r = 0; r < ranks; r++) s += uint64_t(value<T>(r, i));
        return T(s);
    } else {
        using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;
        Sum s = 0;
        for (int r = 0; r < ranks; r++) {
            Sum x = Sum(value<T>(r, i));
            if (rounded) x = Sum(float(bfloat16(float(x))));
            s = r ? s + x : x;
        }
        return T(s);
    }
}

template <class T> static bool same(const T& a, const T& b) { return !memcmp(&a, &b, sizeof(T)); }

// native: sums of floating-point numbers are near, in any order
template <class T> static bool right(const Axis& a, T got, size_t i) {
    const bool rounded = a.group && a.group->bf16_wire && std::is_same_v<T, float>;
    const T want = ordered_sum<T>(a.size, i, rounded);
    if (!a.group || !a.group->native || std::is_integral_v<T>) return same(got, want);
    const double tolerance = std::is_same_v<T, float> ? 1e-6 : 1e-15;
    return std::abs(double(got) - double(want)) <= tolerance * a.size;
}

template <class T> static void check_gathers(const Axis& a, size_t count) {
    const size_t all = count * size_t(a.size), own = count * size_t(a.index);
    const std::vector<T> src = values<T>(a.index, count);
    std::vector<T> dst(all), in_place(all);
    std::copy(src.begin(), src.end(), in_place.begin() + ptrdiff_t(own));
    const T* got = a.all_gather(dst.data(), src.data(), count);
    EXPECT(got == (a.size == 1 ? src.data() : dst.data()));
    a.all_gather(in_place.data(), in_place.data() + own, count);
    int wrong = 0;
    for (size_t i = 0; i < all; i++) {
        const T want = value<T>(int(i / count), i % count);
        wrong += !same(got[i], want) + !same(in_place[i], want);
    }
    EXPECT(wrong == 0, "all_gather of %zu, %d ranks: %d wrong", count, a.size, wrong);
}

template <class T> static void check_reductions(const Axis& a, size_t count) {
    const size_t all = count * size_t(a.size), own = count * size_t(a.index);
    std::vector<std::byte> staging(a.reduce_staging((all + size_t(a.size)) * sizeof(T)));
    a.lend_staging(staging.data(), staging.size());
    const std::vector<T> src = values<T>(a.index, all);
    std::vector<T> dst(count), in_place = src, whole = src, uneven = src;
    const T* got = a.reduce_scatter(dst.data(), src.data(), count);
    a.reduce_scatter(in_place.data() + own, in_place.data(), count);
    int wrong = 0;
    for (size_t i = 0; i < count; i++)
        wrong += !right(a, got[i], own + i) + !right(a, in_place[own + i], own + i);
    EXPECT(wrong == 0, "reduce_scatter of %zu, %d ranks: %d wrong", count, a.size, wrong);

    const size_t odd = all - (all > 1);
    a.all_reduce(whole.data(), all);
    a.all_reduce(uneven.data(), odd);
    wrong = 0;
    for (size_t i = 0; i < all; i++) wrong += !right(a, whole[i], i) + (i < odd && !right(a, uneven[i], i));
    EXPECT(wrong == 0, "all_reduce of %zu, %d ranks: %d wrong", all, a.size, wrong);
    a.lend_staging(nullptr, 0);
}

template <class T> static void check_messages(const Axis& a, size_t count) {
    const std::vector<T> mine = values<T>(a.index, count);
    for (int root = 0; root < a.size; root++) {
        std::vector<T> data = a.index == root ? mine : std::vector<T>(count);
        a.broadcast(data.data(), count, root);
        EXPECT(!count || !memcmp(data.data(), values<T>(root, count).data(), count * sizeof(T)),
               "broadcast of %zu from %d", count, root);
    }
    if (a.size == 1) return;
    // around the ring, twice, by rendezvous: rank 0 sends first
    const int next = (a.index + 1) % a.size, before = (a.index + a.size - 1) % a.size;
    for (int turn = 0; turn < 2; turn++) {
        std::vector<T> data(count);
        if (a.index == 0) a.send(mine.data(), count, next);
        a.recv(data.data(), count, before);
        if (a.index != 0) a.send(mine.data(), count, next);
        EXPECT(!count || !memcmp(data.data(), values<T>(before, count).data(), count * sizeof(T)),
               "send of %zu to the next rank", count);
    }
    // all send before any receives
    const std::vector<T> more = values<T>(a.index + a.size, count);
    std::vector<T> first(count), second(count);
    Pending one = a.start_send(mine.data(), count, next), two = a.start_send(more.data(), count, next);
    a.recv(first.data(), count, before);
    a.recv(second.data(), count, before);
    a.wait(one);
    a.wait(two);
    EXPECT(!count || (!memcmp(first.data(), values<T>(before, count).data(), count * sizeof(T)) &&
                      !memcmp(second.data(), values<T>(before + a.size, count).data(), count * sizeof(T))),
           "two sends of %zu on their way at once", count);
}

// Elements from one rank to another: none, few or many, and none to itself of rank 1.
static size_t elements(size_t count, int from, int to) {
    return from == to && from == 1 ? 0 : count * size_t((2 * from + 3 * to) % 4);
}

// The elements that rank r sends, one rank's after the other's, are known to every rank.
template <class T> static void check_all_to_all(const Axis& a, size_t count) {
    std::vector<size_t> sent, received, before(size_t(a.size));
    size_t out = 0, in = 0;
    for (int k = 0; k < a.size; k++) {
        sent.push_back(elements(count, a.index, k)), out += sent.back();
        received.push_back(elements(count, k, a.index)), in += received.back();
        for (int to = 0; to < a.index; to++) before[size_t(k)] += elements(count, k, to);
    }
    const std::vector<T> src = values<T>(a.index, out);
    std::vector<T> dst(in);
    Pending p = a.start_all_to_all(dst.data(), src.data(), sent.data(), received.data());
    a.wait(p);
    if (a.size == 1) return;
    int wrong = 0;
    for (size_t k = 0, at = 0; k < received.size(); k++)
        for (size_t i = 0; i < received[k]; i++) wrong += !same(dst[at++], value<T>(int(k), before[k] + i));
    EXPECT(wrong == 0, "all_to_all of %zu, %d ranks: %d wrong", count, a.size, wrong);
}

// A gather and a reduction in flight together, and computation meanwhile.
static void check_overlap(const Axis& a, size_t count) {
    const size_t all = count * size_t(a.size), own = count * size_t(a.index);
    std::vector<std::byte> staging(a.reduce_staging(all * sizeof(float)));
    a.lend_staging(staging.data(), staging.size());
    const std::vector<float> src = values<float>(a.index, all);
    std::vector<float> gathered(all), first(count), second(count);
    for (int turn = 0; turn < 3; turn++) {
        Pending g = a.start_all_gather(gathered.data(), src.data(), count);
        Pending r = a.start_reduce_scatter(first.data(), src.data(), count);
        Pending h = a.start_all_gather(gathered.data(), src.data(), count);
        a.wait(g);
        a.wait(r);
        a.wait(r);                      // done already
        Pending s = a.start_reduce_scatter(second.data(), src.data(), count);
        a.wait(h);
        a.wait(s);
        const float *sum = a.size == 1 ? src.data() : first.data(),
                    *again = a.size == 1 ? src.data() : second.data();
        int wrong = 0;
        for (size_t i = 0; i < count; i++) wrong += !right(a, sum[i], own + i) + !same(sum[i], again[i]);
        EXPECT(wrong == 0, "reductions in flight: %d wrong", wrong);
    }
    a.lend_staging(nullptr, 0);
}

template <class T> static void check_type(const Axis& a) {
    for (const size_t count : counts) {
        check_gathers<T>(a, count);
        check_messages<T>(a, count);
        check_all_to_all<T>(a, count);
        if constexpr (sizeof(T) > 1) check_reductions<T>(a, count);
    }
}

static void check_axis(const Axis& a) {
    check_type<float>(a);
    check_type<double>(a);
    check_type<bfloat16>(a);
    check_type<int32_t>(a);
    check_type<int64_t>(a);
    check_type<uint8_t>(a);
    check_overlap(a, 3001);
    a.barrier();
}

TEST(verbs_by_threads) {
    for (int ranks = 1; ranks <= 5; ranks++)
        run_threads(config_of(ranks), [](Config, const Mesh& mesh) { check_axis(mesh.shard); return 0; });
}

TEST(verbs_by_tcp) {
    for (const test::Memory memory : {test::Memory::Read, test::Memory::Apart})
        for (const bool few : {false, true}) {
            Config c = config_of(few ? 5 : 2);
            c.parallel.reduce_dtype = few ? "bf16" : "fp32";
            test::expect_success(test::run_over_tcp(c, few ? 5 : 2, memory, [few](const Mesh& mesh) {
                if (few) check_type<float>(mesh.shard);
                else check_axis(mesh.shard);
                check_overlap(mesh.shard, 300001);
            }));
        }
}

TEST(verbs_with_delays) {
    run_threads(config_of(3), [](Config, const Mesh& mesh) {
        mesh.shard.group->most_delay_us = 2000;
        for (int i = 0; i < 5; i++) check_overlap(mesh.shard, 1001);
        check_messages<int32_t>(mesh.shard, 100);
        return 0;
    });
}

TEST(bf16_on_the_wire) {
    Config c = config_of(4);
    c.parallel.reduce_dtype = "bf16";
    run_threads(c, [](Config, const Mesh& mesh) {
        check_type<float>(mesh.shard);
        EXPECT(!mesh.world.group->bf16_wire, "losses keep their precision");
        return 0;
    });
}

TEST(bytes_are_counted) {
    Config c = config_of(4);
    run_threads(c, [](Config, const Mesh& mesh) {
        const Axis& a = mesh.shard;
        std::vector<float> x(4 * 3000, 1), y(4 * 3000);
        a.all_gather(y.data(), x.data(), 3000);
        a.reduce_scatter(y.data(), x.data(), 3000);
        a.all_reduce(x.data(), 12000);
        a.broadcast(x.data(), 100, 2);
        const Moved* m = a.group->moved;
        EXPECT(m[kAllGather].bytes == 3 * 3000 * 4 && m[kAllGather].calls == 1);
        EXPECT(m[kReduceScatter].bytes == 3 * 3000 * 4 && m[kReduceScatter].calls == 1);
        EXPECT(m[kAllReduce].bytes == 2 * 3 * 3000 * 4);
        EXPECT(m[kBroadcast].bytes == (a.index == 2 ? 3 * 100 * 4 : 0));
        const std::vector<size_t> sent(4, 10 * size_t(a.index) + 1), received = {1, 11, 21, 31};
        Pending p = a.start_all_to_all(y.data(), x.data(), sent.data(), received.data());
        a.wait(p);
        EXPECT(m[kAllToAll].bytes == 3 * sent[0] * 4 && m[kAllToAll].calls == 1);
        a.group->bf16_wire = true;
        a.reduce_scatter(y.data(), x.data(), 3000);
        EXPECT(m[kReduceScatter].bytes == 3 * 3000 * (4 + 2));
        return 0;
    });
}

// What mpirun starts: this binary, with this test.
TEST(processes) {
    if (launcher().world == 1) return;
    for (const char* reduce : {"ordered", "native", "bf16", "messages"}) {
        static int turn = 0;
        Config c = config_of(0);
        c.train.batch_tokens = 60 * 64;
        c.parallel.reduce = !strcmp(reduce, "native") ? "native" : "ordered";
        c.parallel.reduce_dtype = !strcmp(reduce, "bf16") ? "bf16" : "fp32";
        if (turn++ == 0) mpi_begin();
        RankMesh ranks(c.parallel, launcher().world, launcher().rank);
        for (int axis = 0; axis < kGroups; axis++)
            join_mpi(ranks.groups[axis], ranks.places[size_t(axis)].color, ranks.places[size_t(axis)].index);
        // as if a count could say 1,000 bytes at most
        if (!strcmp(reduce, "messages")) ranks.mesh.shard.group->message = 1000;
        EXPECT(ranks.mesh.shard.size == launcher().world && ranks.mesh.shard.index == launcher().rank);
        const bool few = !strcmp(reduce, "bf16") || !strcmp(reduce, "messages");
        if (few) check_type<float>(ranks.mesh.shard);
        else check_axis(ranks.mesh.shard);
        check_overlap(ranks.mesh.shard, !strcmp(reduce, "messages") ? 3001 : 300001);
        ranks.mesh.shard.barrier();
    }
    mpi_end();
}

TEST(verbs_by_mpi) {
    if (launcher().world > 1) return;
    test::expect_processes({2, 5});
}
