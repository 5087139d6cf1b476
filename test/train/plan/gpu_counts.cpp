// The number of GPUs for a deadline and a budget, over invented step times.
#include <cmath>

#include "llmc/train/plan/print.h"
#include "llmc/train/plan/search_counts.h"
#include "test/test.h"

// $1 a second and GPU
static Machine priced() {
    Machine m = machine_of({.gpu = "h100", .file = ""});
    m.dollars_per_hour = 3600;
    return m;
}

// A search whose step on so many GPUs takes `seconds`; infinite: no plan fits.
static std::function<Search(int)> searched(double (*seconds)(int ranks)) {
    return [seconds](int ranks) {
        Search found;
        if (std::isinf(seconds(ranks))) return found;
        Estimate e;
        e.cfg.train.steps = 1, e.ranks = ranks, e.step.seconds = seconds(ranks);
        found.best.push_back(e);
        return found;
    };
}

static ClusterConfig limits_of(double seconds, double dollars) {
    ClusterConfig limits;
    limits.days = seconds / 86400, limits.dollars = dollars;
    return limits;
}

// Far from the largest number: at $1 a second and GPU, 2 GPUs take 510 s and $1,020, 3 take 343 s and $1,030,
// 4 take 260 s and $1,040.
TEST(a_number_between_powers_of_two_may_alone_keep_both_limits) {
    const Machine m = priced();
    const auto slower_and_cheaper = searched([](int ranks) { return 1000. / ranks + 10; });
    const ClusterConfig both = limits_of(350, 1035);
    const CountedSearch found = search_counts(both, m, slower_and_cheaper);
    const std::string text = counts_text(found, both, m, "");
    EXPECT(found.search.best.size() == 1 && found.search.best[0].ranks == 3 &&
           text.find("the cheapest within") != text.npos, "%s", text.c_str());
    const ClusterConfig neither = limits_of(250, 1035);
    EXPECT(search_counts(neither, m, slower_and_cheaper).search.best.empty(), "both are kept");
}

// 8 GPUs are the fewest, and wait for offload; 10 do not.
TEST(the_fewest_gpus_that_fit_may_cost_more_than_the_next) {
    const Machine m = priced();
    const ClusterConfig budget = limits_of(0, 1500);
    const CountedSearch found = search_counts(budget, m, searched([](int ranks) {
        if (ranks < 8) return double(INFINITY);
        return (ranks == 10 ? 1000. : 2000. + ranks) / ranks;
    }));
    EXPECT(found.search.best.size() == 1 && found.search.best[0].ranks == 10, "%s",
           counts_text(found, budget, m, "").c_str());
}

TEST(numbers_of_gpus_go_to_16384) {
    std::vector<int> numbers;
    search_counts({}, priced(), [&](int ranks) {
        numbers.push_back(ranks);
        return Search();
    });
    EXPECT(numbers.size() == 15 && numbers.back() == 16384, "%zu numbers", numbers.size());
}
