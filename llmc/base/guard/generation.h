// Generations of a job with run.elastic: the ranks that train together until one of them is lost. Those that
// live end their generation by the exception Lost, and join the next.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "llmc/base/check.h"

inline namespace guard {

// In the environment of a rank: the descriptor of its channel to the agent.
inline constexpr const char* kAgentVariable = "TRAIN_GPT_AGENT";

// Thrown by waits, and caught by the loop over generations (comm/launch/elastic.h).
struct Lost {};

// Of this rank, from 1 on; 0: a lost rank ends the job.
inline thread_local int64_t own_generation = 0;

// The page that this rank's thread shares with its agent; null: there is no agent.
struct ProgressPage;
inline thread_local ProgressPage* agent_page = nullptr;

// Tests: called where a rank may die. What it throws ends the rank's thread, as a signal ends a process.
enum class DiesAt { Collective, Door, Image, Fetch };
inline thread_local const std::function<void(DiesAt)>* may_die = nullptr;
inline void may_die_at(DiesAt place) { if (may_die) (*may_die)(place); }

// Throws Lost; a heartbeat. together: all ranks leave at this place, and none of them is lost.
[[noreturn]] void leave_generation(bool together = false);
// Called before Lost is thrown: ends what keeps a device waiting for other ranks. null: nothing does.
inline thread_local void (*before_leaving)(bool together) = nullptr;

// Called again and again by the waits of this rank: throws Lost when the agent has stopped the generation,
// except while an exception is under way.
void look_for_stop();

// Another rank does not answer any more: ends the generation, or the job with exit code 75 and the message.
[[noreturn]] void lose_rank(const char* file, int line, const std::string& message);

}  // namespace guard
