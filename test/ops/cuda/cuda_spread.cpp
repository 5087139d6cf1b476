// Statistics of a tensor's elements on GPUs.
#include "test/cuda.h"
#include "test/spreads.h"

namespace PRECISION {

template <class F> static Spread run(F op) {
    const CudaScratch lent;
    const OnDevice to(std::vector<Spread>(1));
    op(to.p);
    return to.host()[0];
}

TEST(spreads_match_their_definition_and_the_cpu) {
    for (const size_t count : kSpreadCounts) {
        const auto x = with_specials<real>(count, 1), y = with_specials<real>(count, 2);
        const auto stored = with_specials<floatX>(count, 3), old = with_specials<floatX>(count, 4);
        Wide change(count), stored_change(count);
        for (size_t i = 0; i < count; i++) {
            change[i] = double(real(x[i] - y[i]));
            stored_change[i] = double(real(real(stored[i]) - real(old[i])));
        }
        const OnDevice dev_x(x), dev_y(y);
        const OnDevice dev_stored(stored), dev_old(old);
        const Spread of_stored_change = run([&](Spread* to) {
            cuda::spread_of_stored_change(to, dev_stored, dev_old, count);
        });
        EXPECT(close(of_stored_change, spread_by_definition(stored_change)), "%zu", count);
        const Spread of_x = run([&](Spread* to) { cuda::spread(to, dev_x, count); });
        const Spread of_change = run([&](Spread* to) { cuda::spread_of_change(to, dev_x, dev_y, count); });
        const Spread of_stored = run([&](Spread* to) { cuda::spread_of_stored(to, dev_stored, count); });
        EXPECT(close(of_x, spread_by_definition(wide(x))), "%zu", count);
        EXPECT(close(of_change, spread_by_definition(change)), "%zu", count);
        EXPECT(close(of_stored, spread_by_definition(wide(stored))), "%zu", count);
        const Lent host(2);
        Spread by_cpu;
        cpu::spread(&by_cpu, x.data(), count);
        EXPECT(close(of_x, by_cpu), "%zu", count);
    }
}

// A second spread adds to the first, from any element on.
TEST(spreads_add_to_what_is_there) {
    const size_t count = 40001;
    const auto x = with_specials<real>(count, 4);
    const OnDevice dev_x(x);
    const Spread both = run([&](Spread* to) {
        cuda::spread(to, dev_x, 133);
        cuda::spread(to, dev_x + 133, count - 133);
    });
    EXPECT(close(both, spread_by_definition(wide(x))), "133 and the rest");
}

TEST(spreads_have_the_same_bits_in_every_order) {
    const size_t count = 40001;
    const OnDevice x(with_specials<real>(count, 5));
    std::vector<Spread> results;
    in_every_order([&] { results.push_back(run([&](Spread* to) { cuda::spread(to, x, count); })); });
    for (const Spread& s : results) EXPECT(s == results[0]);
}

TEST(spreads_move_what_their_floors_say) {
    const size_t count = 40001;
    const OnDevice x(with_specials<real>(count, 5)), y(with_specials<real>(count, 6));
    const OnDevice stored(with_specials<floatX>(count, 7)), old(with_specials<floatX>(count, 8));
    const OnDevice to(std::vector<Spread>(1));
    const CudaScratch lent;
    EXPECT_FLOORS([&] {
        cuda::spread(to, x, count);
        cuda::spread_of_change(to, x, y, count);
        cuda::spread_of_stored(to, stored, count);
        cuda::spread_of_stored_change(to, stored, old, count);
    });
}

}  // namespace PRECISION
