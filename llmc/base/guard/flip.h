// Bits flipped on purpose, for tests of what finds them: FAULT=train:3:flip-weights:1 (progress_page.h).
//
// A step offers a row of places: tensors, gradients of blocks, outputs of blocks, messages. FAULT_PLACE=K:N
// names the place (the K-th from the start of the step on, from 0) and the bit there (the N-th, modulo the
// number of bits); default 0:0. Places of one rank are in a fixed order, so a flip repeats.
#pragma once
#include <cstdint>
#include <string>

inline namespace guard {

// What is flipped. Message: what a collective or a stage of the pipeline has sent to this rank.
enum class Flip : uint8_t { None, Weights, Gradients, Moments, Activations, Message };

// Of this rank's thread: what the next flip is for. A place compares this word and does nothing else.
inline thread_local Flip flip_asked = Flip::None;

struct FlipPlace { uint64_t skipped = 0, bit = 0; };

// "flip" (of weights), "flip-weights", "flip-gradients", "flip-moments", "flip-activations", "flip-message";
// with "flips" in front: in every step from then on. None: no such action.
Flip flip_named(const std::string& action);
bool repeats_flip(const std::string& action);       // "flips..."

// Asks this rank for a flip at the place that FAULT_PLACE names, or at the given place.
void ask_flip(Flip what);
void ask_flip(Flip what, FlipPlace at);

void stamp_fault();         // writes the file FAULT_STAMP (progress_page.h)

// Called at a place: whether it is the one. Then nothing is asked for any more, and *bit is the bit.
bool is_place_of_flip(uint64_t* bit);

}  // namespace guard
