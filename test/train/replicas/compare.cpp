// Who is named where hashes of ranks differ.
#include "llmc/train/replicas/compare.h"

#include "test/test.h"

// A text like "a a b | c c c": each kind's hashes in the order of the ranks, '-' where a rank has none. A
// number in front is the group; 1 by default.
static Suspects suspects_of(const std::vector<std::string>& kinds) {
    const size_t ranks = kinds[0].size();
    std::vector<CopyHash> hashes(ranks * kinds.size());
    for (size_t k = 0; k < kinds.size(); k++)
        for (size_t r = 0; r < ranks; r++)
            if (kinds[k][r] != '-')
                hashes[r * kinds.size() + k] = {kinds[k][r] < 'a' ? 2u : 1u, uint64_t(kinds[k][r])};
    return compare(hashes, kinds.size());
}

static void expect(const std::vector<std::string>& kinds, std::vector<int> ranks, bool sure, size_t kind) {
    const Suspects s = suspects_of(kinds);
    EXPECT(s.ranks == ranks && (ranks.empty() || (s.sure == sure && s.kind == kind)),
           "'%s': %zu ranks, first %d, sure %d, kind %zu", kinds[0].c_str(), s.ranks.size(),
           s.ranks.empty() ? -1 : s.ranks[0], int(s.sure), s.kind);
}

TEST(equal_hashes_are_no_suspects) {
    expect({"a"}, {}, true, 0);
    expect({"aaa", "bbb"}, {}, true, 0);
    expect({"a-a", "-b-"}, {}, true, 0);
}

// Capital letters are another group, which may have other hashes.
TEST(groups_have_nothing_to_do_with_each_other) { expect({"aAaA", "bbBB"}, {}, true, 0); }

TEST(a_majority_of_three_names_the_rank) {
    expect({"aba"}, {1}, true, 0);
    expect({"aaa", "bbc"}, {2}, true, 1);
    expect({"aabcaa"}, {2, 3}, true, 0);
    expect({"AbbBcA"}, {3, 4}, true, 0);
}

TEST(two_copies_detect_and_name_both) {
    expect({"ab"}, {0, 1}, false, 0);
    expect({"aa-", "-bc"}, {1, 2}, false, 1);
    expect({"aabb"}, {0, 1, 2, 3}, false, 0);
    expect({"abc"}, {0, 1, 2}, false, 0);
}

// Two copies of what tp cuts, four of what it leaves whole: the four tell.
TEST(a_majority_of_one_kind_explains_two_copies_of_another) {
    expect({"abcb", "dedd"}, {1}, true, 0);
    expect({"a-b-", "ddcd"}, {2}, true, 0);
}
