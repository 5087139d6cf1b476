// Bits flipped on purpose: where FAULT_PLACE says, once, and nowhere without a request.
#include <bit>
#include <cstring>

#include "llmc/comm/flip_here.h"
#include "test/test.h"

TEST(actions_of_fault_name_what_is_flipped) {
    const struct { const char* action; Flip what; bool repeats; } cases[] = {
        {"flip", Flip::Weights, false}, {"flip-weights", Flip::Weights, false},
        {"flip-gradients", Flip::Gradients, false}, {"flip-moments", Flip::Moments, false},
        {"flips-activations", Flip::Activations, true}, {"flip-message", Flip::Message, false},
        {"flips", Flip::Weights, true}, {"flip-", Flip::None, false}, {"kill", Flip::None, false},
        {"flip-else", Flip::None, false}};
    for (const auto& c : cases)
        EXPECT(flip_named(c.action) == c.what && repeats_flip(c.action) == c.repeats, "%s", c.action);
}

static int bits_set(const unsigned char (&memory)[16]) {
    int set = 0;
    for (const unsigned char byte : memory) set += std::popcount(byte);
    return set;
}

TEST(one_bit_at_one_place) {
    unsigned char first[16] = {}, second[16] = {};
    const auto places = [&] {
        for (auto* memory : {&first, &second}) flip_if_asked(Flip::Weights, memory, sizeof *memory);
    };
    places();
    ask_flip(Flip::Moments, {0, 3});
    places();
    EXPECT(bits_set(first) == 0 && bits_set(second) == 0, "a flip that nobody asked for");
    ask_flip(Flip::Weights, {1, 8 * 16 + 10});          // the bit modulo the number of bits
    flip_if_asked(Flip::Weights, nullptr, 0);           // no place
    places();
    places();
    EXPECT(bits_set(first) == 0 && bits_set(second) == 1 && second[1] == 4, "%d and %d bits", bits_set(first),
           bits_set(second));
    EXPECT(flip_asked == Flip::None, "a flip is asked for again");
}
