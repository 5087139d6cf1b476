// Statistics of a tensor's elements.
#include "test/spreads.h"

namespace PRECISION {

TEST(spreads_match_their_definition) {
    for (const size_t count : kSpreadCounts)
        for (const int threads : {1, 3}) {
            const Lent lent(threads);
            const auto x = with_specials<real>(count, 1), y = with_specials<real>(count, 2);
            const auto stored = with_specials<floatX>(count, 3), old = with_specials<floatX>(count, 4);
            Wide change(count), stored_change(count);
            for (size_t i = 0; i < count; i++) {
                change[i] = double(real(x[i] - y[i]));
                stored_change[i] = double(real(real(stored[i]) - real(old[i])));
            }
            Spread of_x, of_change, of_stored, of_stored_change;
            cpu::spread(&of_x, x.data(), count);
            cpu::spread_of_change(&of_change, x.data(), y.data(), count);
            cpu::spread_of_stored(&of_stored, stored.data(), count);
            cpu::spread_of_stored_change(&of_stored_change, stored.data(), old.data(), count);
            EXPECT(close(of_stored_change, spread_by_definition(stored_change)), "%zu", count);
            EXPECT(close(of_x, spread_by_definition(wide(x))), "%zu", count);
            EXPECT(close(of_change, spread_by_definition(change)), "%zu", count);
            EXPECT(close(of_stored, spread_by_definition(wide(stored))), "%zu", count);
            double binned = 0;
            for (const double n : of_x.bins) binned += n;
            EXPECT(binned + of_x.zeros + of_x.nonfinite == double(count), "every element counts once");
        }
}

// Pieces add up to the whole, and threads change no bit.
TEST(spreads_add_up) {
    const size_t count = 50000;
    const auto x = with_specials<real>(count, 1);
    std::vector<Spread> whole(2), pieces(2);
    for (const int threads : {1, 3}) {
        const Lent lent(threads);
        Spread& all = whole[size_t(threads / 2)];
        Spread& parts = pieces[size_t(threads / 2)];
        cpu::spread(&all, x.data(), count);
        for (size_t at = 0; at < count; at += 7001)
            cpu::spread(&parts, x.data() + at, std::min<size_t>(7001, count - at));
    }
    EXPECT(whole[0] == whole[1] && pieces[0] == pieces[1], "threads change bits");
    EXPECT(close(pieces[0], whole[0]), "pieces are not the whole");
    Spread sum = whole[0];
    add_spread(sum, pieces[0]);
    EXPECT(sum.count == 2. * count && sum.largest == whole[0].largest && sum.zeros == 2 * whole[0].zeros);
}

TEST(bins_are_powers_of_two) {
    for (int power = -60; power < 40; power++) {
        const int bin = std::clamp(power - kLowestBin, 0, kSpreadBins - 1);
        const float low = std::ldexp(1.f, power), high = std::nextafter(2 * low, 0.f);
        EXPECT(spread_bin(low) == bin && spread_bin(high) == bin, "2^%d", power);
        EXPECT(spread_bin(double(low)) == bin && spread_bin(double(high)) == bin, "2^%d", power);
    }
    EXPECT(spread_bin(1e-44f) == 0 && spread_bin(3e38f) == kSpreadBins - 1);
}

}  // namespace PRECISION
